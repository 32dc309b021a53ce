// SPDX-License-Identifier: Apache-2.0
// The timeline of this rank: what the engine does, as a file for chrome://tracing or Perfetto.
//
// The engine's thread puts records into a ring and never waits; a thread of the timeline's own
// formats and writes them. Where the ring is full, whole operations are left out and counted.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

#include "collectives/backend.h"
#include "collectives/negotiation/request.h"
#include "collectives/trace/chrome_format.h"
#include "collectives/trace/record_ring.h"
#include "collectives/trace/trace_file.h"
#include "rendezvous/base/time.h"

namespace hora::collectives {

class Timeline {
 public:
  struct Options {
    std::string path;
    TraceIdentity identity;  // its times are filled in by open()
    std::uint64_t most_bytes = UINT64_C(1) << 30;
    std::size_t ring_bytes = std::size_t{4} << 20;
    // The file is not whole, and why: "No space left on device". Once, from the writer's thread.
    std::function<void(const std::string& why)> on_lost = {};
  };
  static Result<std::unique_ptr<Timeline>> open(Options options);
  // Writes what is left and closes the file.
  ~Timeline();
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  // For one thread at a time. See Observer.
  void taken(const Request& request, Clock::time_point submitted);
  void arrived(int rank, const Request& request);
  void agreed(const Response& response, Clock::time_point now);
  void step_begins(int place, std::span<const Response* const> step);
  void step_ends(int place, bool good);
  void activity_begins(int place, const char* name);
  void activity_ends(int place);
  void cycle();

 private:
  struct TensorState {
    std::uint32_t number = 0;
    bool recording = false;  // its NEGOTIATE phase is in the ring
    hora_dtype dtype = HORA_UINT8;
    std::vector<std::int64_t> shape{-1};  // as last published to the writer
  };

  Timeline(TraceFile file, Options options);
  TensorState& known(const Request& request);
  bool room_for_more();
  void start(TensorState& known, TraceKind kind, const Request& request, std::uint32_t value,
             std::int64_t time_ns);
  void put(TraceRecord record, std::string_view payload = {});
  void publish();
  void write_until_closed();
  void report_lost();

  std::string path_;
  std::function<void(const std::string& why)> on_lost_;

  // For the engine's thread.
  RecordRing ring_;
  bool mark_cycles_;
  std::unordered_map<std::string, TensorState> tensors_;
  std::uint32_t next_number_ = 1;
  std::uint32_t lost_ = 0;
  std::string scratch_;
  std::vector<std::uint32_t> members_;

  // For the writer's.
  TraceFile file_;
  TraceIdentity identity_;

  os::Fd wake_;
  std::atomic<bool> nudged_{false};
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace hora::collectives
