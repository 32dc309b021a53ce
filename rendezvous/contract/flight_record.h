// SPDX-License-Identifier: Apache-2.0
// The activity of a rank, in memory that outlives it: libhora writes, the agent reads once the rank
// is dead. One page per rank of a host, in one file that the agent owns. [pure]
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hora::rendezvous {

inline constexpr std::size_t kFlightPageBytes = 4096;
inline constexpr std::uint64_t kFlightMagic = 0x34544c4641524f48;  // "HORAFLT4"

// One operation. `stamp` is odd while the note is being written, and grows with every note.
struct FlightNote {
  std::uint64_t stamp = 0;
  std::int64_t began_ns = 0;  // of the monotonic clock
  std::int64_t ended_ns = 0;  // 0: it had not ended
  std::uint32_t tensors = 0;  // that ran together
  char operation[20] = {};    // "allreduce"
  char name[76] = {};         // of the first tensor; cut where longer
  std::int32_t process_set = 0;
};
static_assert(sizeof(FlightNote) == 128);

inline constexpr std::size_t kFlightAsked = 8;
inline constexpr std::size_t kFlightSteps = 22;

// kJoining: in the call that joins the job, until all ranks have met. kLeft: this rank has asked to
// leave, before the others did or anything broke; most do so when their process begins to end.
enum class FlightState : std::uint32_t {
  kUnused = 0,
  kRunning = 1,
  kEnded = 2,
  kJoining = 3,
  kLeft = 4
};

// The GPUs that a rank sees, as their driver describes them each second, used by any process.
struct FlightGpus {
  std::uint32_t count = 0;       // 0: not known
  std::int32_t percent = -1;     // of the time in which they worked, their mean; -1: not known
  std::uint64_t used_bytes = 0;  // of all of them, likewise below
  std::uint64_t total_bytes = 0;
  std::uint64_t peak_bytes = 0;   // the largest used_bytes so far
  std::uint64_t percent_sum = 0;  // of `samples`
  std::uint64_t samples = 0;
};

// Zeroed memory is a valid page of a rank that never used the runtime.
struct FlightPage {
  std::uint64_t magic = 0;
  std::int32_t rank = 0;
  FlightState state = FlightState::kUnused;
  std::uint64_t stacks_offset = 0;  // of this page's StackArea in the file; 0: there is none
  std::uint64_t process_sets = 0;   // bit N: the rank is in process set N; of those below 64
  std::int64_t since_ns = 0;        // of the state
  // What follows, up to `waiting_since_ns`, changes with the operations.
  std::uint64_t collectives = 0;      // that the rank has come through
  std::uint64_t bytes = 0;            // of the tensors that it gave to them
  std::uint64_t waited_ns = 0;        // for other ranks to ask for what it had asked for
  std::int64_t waiting_since_ns = 0;  // it waits so now, of the monotonic clock; 0: it does not
  char lost_record[136] = {};  // "its timeline: No space left on device"; empty: none is lost
  FlightGpus gpus;
  FlightNote asked[kFlightAsked];  // the newest operations that this rank asked for; they end
                                   // when all ranks agree
  FlightNote steps[kFlightSteps];  // the newest that it took part in
};
static_assert(sizeof(FlightPage) == kFlightPageBytes);

// "was in allreduce 'grad/7' for 2.1 s": what the rank of this page did at `now_ns`. Empty when it
// had not joined a job, or had left it. Any bytes are safe to give.
std::string describe_flight(std::string_view page, std::int64_t now_ns);

// An operation that a rank is in.
struct FlightOperation {
  std::string text;      // "allreduce 'grad/7'"
  bool running = false;  // all ranks have agreed on it, and it runs; else this rank waits for that
  std::int64_t for_ns = 0;
  std::int32_t process_set = 0;
};
struct FlightStanding {
  FlightState state = FlightState::kUnused;
  std::int64_t for_ns = 0;                  // in that state
  std::uint64_t process_sets = 0;           // as in the page
  std::vector<FlightOperation> operations;  // the oldest first
  std::string last;                         // the newest that has ended; empty: none has
  std::int64_t last_ended_ns = 0;           // how long ago
  std::uint64_t activity = 0;               // grows with every operation
};
// Nothing when no rank wrote the page. Any bytes are safe to give.
std::optional<FlightStanding> read_flight(std::string_view page, std::int64_t now_ns);

// How long ago the rank of this page left the others by itself (kLeft); nothing when it did not.
std::optional<std::int64_t> left_for_ns(std::string_view page, std::int64_t now_ns);

// Files that the rank of this page did not write completely, and why; empty: none.
std::string lost_record(std::string_view page);

// What a rank has done so far. Operations of the world count as waiting, those of other process
// sets do not: so all ranks can be compared. Waits of some microseconds are not measured.
struct FlightCounters {
  std::int64_t collectives = 0;
  std::int64_t bytes = 0;          // of the tensors that it gave to them
  std::int64_t waited_ns = 0;      // the wait that it is in included
  std::int64_t last_ended_ns = 0;  // how long ago its last collective ended; -1: none has
  FlightGpus gpus;
};
// Nothing when no rank wrote the page. Any bytes are safe to give: no number is beyond 10^18.
std::optional<FlightCounters> flight_counters(std::string_view page, std::int64_t now_ns);

// The rank that wrote the page; nothing when none did.
std::optional<int> flight_rank(std::string_view page);

}  // namespace hora::rendezvous
