// SPDX-License-Identifier: Apache-2.0
// The flight recorder: a rank's latest operations and its stack, kept in a file for the agent.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "collectives/negotiation/request.h"
#include "rendezvous/base/time.h"
#include "rendezvous/contract/flight_record.h"
#include "rendezvous/os/files.h"

namespace hora::collectives {

// Lets the agent ask every thread of this process for its native stack, without rights over other
// processes: the agent sends a signal to each thread, whose handler writes its own stack into the
// file of the flight recorder (rendezvous/contract/stack_record.h).
// The handler neither allocates nor locks. It stays for the life of the process, as this library
// does.

// `path`, `page`: as for FlightRecorder::open. Where the file has no room for stacks, or the signal
// is taken by the program, nothing is offered. Of one process the first call counts.
void offer_stacks(const std::string& path, int page);

// Keeps a note of what this rank is doing in memory that the agent reads when the rank is dead, be
// it by SIGKILL. Always on; without an agent it does nothing.

class FlightRecorder {
 public:
  FlightRecorder() = default;
  ~FlightRecorder();
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;

  // `path`: the agent's file (HORA_FLIGHT_RECORDER), `page`: this rank's place in it. Where it
  // cannot be opened nothing is recorded. From now on this rank is meeting the others.
  void open(const std::string& path, int page, int rank);
  // ... and now it has met them. `process_sets`: bit N when it is in set N.
  void joined(std::uint64_t process_sets);
  void changed_sets(std::uint64_t process_sets);

  // See Observer. `agreed` for what this rank asked for.
  void taken(const Request& request, Clock::time_point submitted);
  void agreed(std::span<const Response* const> responses, Clock::time_point now);
  void step_begins(int place, std::span<const Response* const> step, Clock::time_point now);
  void step_ends(int place, Clock::time_point now);
  void ran_at_once(const Request& request, Clock::time_point now);
  // This rank is about to ask to leave. Any thread.
  void asks_to_leave();
  // The others leave, before this one has asked, or because another one asked first.
  void others_left();
  void world_ended();
  bool is_open() const { return page_ != nullptr; }
  // Any thread, one at a time, likewise below.
  void gpus(const rendezvous::FlightGpus& now);
  // "its timeline: No space left on device".
  void lost_record(std::string_view what);

 private:
  void enter(rendezvous::FlightState state);
  void wait_from(std::int64_t since_ns);  // 0: it waits no more
  void end_wait(std::int64_t now_ns);

  os::MappedPart mapped_;
  rendezvous::FlightPage* page_ = nullptr;  // in it
  std::uint64_t stamp_ = 0;
  std::size_t asked_ = 0;  // notes of each kind so far
  std::size_t steps_ = 0;
  std::int64_t waiting_since_ns_ = 0;  // as in the page
  std::int64_t last_agreed_ns_ = 0;
  std::uint64_t at_once_bytes_ = 0;  // of the newest operation that was run at once
  std::size_t last_at_once_ = 0;     // as steps_, when the newest of them was run at once; else not
  // By slot, the step's number among all. More slots than these are not distinguished.
  std::array<std::size_t, rendezvous::kFlightSteps> begun_{};
};

}  // namespace hora::collectives
