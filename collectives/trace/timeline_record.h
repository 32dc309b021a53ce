// SPDX-License-Identifier: Apache-2.0
// What travels from the engine's thread to the thread that writes the timeline.  [pure]
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

namespace hora::collectives {

enum class TraceKind : std::uint16_t {
  kTensor,   // payload: the name of tensor number `tensor`, from now on
  kShape,    // payload: its shape as text; value: its dtype
  kTaken,    // this rank asks for it; value: TraceLabel
  kArrived,  // rank `value` asks for it; extra: TraceLabel
  kAgreed,   // value: TraceLabel, kError when the ranks disagree
  // extra: the step's place
  kStepBegins,      // payload: the numbers of its tensors (std::uint32_t each)
  kActivityBegins,  // payload: its name
  kActivityEnds,
  kStepEnds,  // value: 1 when it went well
  kCycle,
  kLost,  // value: operations that were not recorded for want of room
};

// How the timeline calls an operation.
enum class TraceLabel : std::uint32_t {
  kAllreduce,
  kAllgather,
  kBroadcast,
  kAlltoall,
  kReducescatter,
  kAdasum,
  kBarrier,
  kJoin,
  kError,
};

struct TraceRecord {
  std::uint32_t bytes = 0;  // with the payload, a multiple of 8: RecordRing's
  TraceKind kind = TraceKind::kCycle;
  std::uint16_t extra = 0;
  std::uint32_t tensor = 0;
  std::uint32_t value = 0;
  std::int64_t time_ns = 0;  // of the monotonic clock
  std::uint32_t payload_bytes = 0;
  std::uint32_t reserved = 0;
};
static_assert(sizeof(TraceRecord) == 32);

inline TraceRecord read_trace_record(const char* bytes) {
  TraceRecord record;
  std::memcpy(&record, bytes, sizeof record);
  return record;
}

inline std::string_view trace_payload(const char* bytes, const TraceRecord& record) {
  return {bytes + sizeof record, record.payload_bytes};
}

}  // namespace hora::collectives
