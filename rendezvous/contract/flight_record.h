// What a rank was doing, in memory that outlives it: libhora writes, the agent reads once the rank
// is dead. One page per rank of a host, in one file that the agent owns.  [pure]
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace hora::rendezvous {

inline constexpr std::size_t kFlightPageBytes = 4096;
inline constexpr std::uint64_t kFlightMagic = 0x31544c4641524f48;  // "HORAFLT1"

// One operation. `stamp` is odd while the note is being written, and grows with every note.
struct FlightNote {
  std::uint64_t stamp = 0;
  std::int64_t began_ns = 0;  // of the monotonic clock
  std::int64_t ended_ns = 0;  // 0: it had not ended
  std::uint32_t tensors = 0;  // that ran together
  char operation[20] = {};    // "allreduce"
  char name[80] = {};         // of the first tensor; cut where longer
};
static_assert(sizeof(FlightNote) == 128);

inline constexpr std::size_t kFlightAsked = 8;
inline constexpr std::size_t kFlightSteps = 23;

enum class FlightState : std::uint32_t { kUnused = 0, kRunning = 1, kEnded = 2 };

// Zeroed memory is a valid page of a rank that never used the runtime.
struct FlightPage {
  std::uint64_t magic = 0;
  std::int32_t rank = 0;
  FlightState state = FlightState::kUnused;
  char reserved[112] = {};
  FlightNote asked[kFlightAsked];  // the newest operations that this rank asked for; they end
                                   // when all ranks agree
  FlightNote steps[kFlightSteps];  // the newest that it took part in
};
static_assert(sizeof(FlightPage) == kFlightPageBytes);

// "was in allreduce 'grad/7' for 2.1 s": what the rank of this page did at `now_ns`. Empty when it
// had not joined a job, or had left it. Any bytes are safe to give.
std::string describe_flight(std::string_view page, std::int64_t now_ns);
// The rank that wrote the page; nothing when none did.
std::optional<int> flight_rank(std::string_view page);

}  // namespace hora::rendezvous
