// SPDX-License-Identifier: Apache-2.0
// The records of a timeline, and the offsets between the clocks of ranks.  [pure]
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace hora::collectives {

// How far the monotonic clocks of two hosts are apart, from messages that went both ways.
// What a rank sends is received later: each message bounds the offset from one side.

class ClockOffset {
 public:
  // Rank 0 said `zero_sent_ns` (its clock), which was here at `received_ns` (ours).
  void received(std::int64_t zero_sent_ns, std::int64_t received_ns) {
    most_ = std::min(most_, received_ns - zero_sent_ns);
  }
  // A message sent at `sent_ns` (ours) reached rank 0 at `zero_received_ns` (its clock).
  void answered(std::int64_t sent_ns, std::int64_t zero_received_ns) {
    least_ = std::max(least_, sent_ns - zero_received_ns);
  }

  bool known() const { return least_ != INT64_MIN && most_ != INT64_MAX; }
  // Our clock minus rank 0's; known to within error_ns().
  std::int64_t offset_ns() const { return known() ? least_ + (most_ - least_) / 2 : 0; }
  std::int64_t error_ns() const { return known() ? (most_ - least_ + 1) / 2 : 0; }

 private:
  std::int64_t least_ = INT64_MIN;
  std::int64_t most_ = INT64_MAX;
};

// What travels from the engine's thread to the thread that writes the timeline.

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
  kLost,  // value: operations that were not recorded because memory was missing
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
