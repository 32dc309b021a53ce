// SPDX-License-Identifier: Apache-2.0
// One simulated life: the world's state, and what happens in it. job_simulation.h says what it is
// for.
#pragma once

#include <algorithm>
#include <cstdint>
#include <queue>
#include <random>
#include <string>
#include <variant>
#include <vector>

#include "launcher/failures/failure_code.h"
#include "launcher/job/job_state.h"
#include "tests/unit/launcher/job/job_simulation.h"

namespace hora::launcher::simulation {

using std::chrono::nanoseconds;

inline constexpr Milliseconds kSweep{3'000};  // beyond the grace, for a host to say goodbye
inline constexpr Milliseconds kSlack{50};     // how late a timer may be
inline constexpr Milliseconds kLease{10'000};
inline constexpr std::size_t kMostEvents = 20'000;

// The first failure. Consequences follow by themselves.
enum class Fault {
  kNone,
  kRankFails,
  kHostCrashes,
  kLinkCut,
  kLinkReset,
  kAgentFails,
  kNeverConnects,
  kNeverReady,
  kJobTooLong,
  kUserSignal,
  kOutputClosed,
  kLaunchFails,
  kSilentGoodbye,
  kLauncherStopped,
  kCount
};
inline constexpr const char* kFaultNames[] = {"nothing",
                                              "a rank fails",
                                              "a host crashes",
                                              "a link is cut",
                                              "a link is reset",
                                              "an agent fails",
                                              "a host never connects",
                                              "a host never gets ready",
                                              "the job takes too long",
                                              "a user's signal",
                                              "the output is closed",
                                              "the launch fails",
                                              "an agent's goodbye without its ranks' exits",
                                              "the launcher was stopped for longer than the lease"};

struct Rank {
  bool running = false;
  bool stubborn = false;  // ignores TERM
  int code = 0;
  TimePoint end{};
};

struct Host {
  // The launcher's side.
  bool let_go = false;
  bool reported = false;
  // The network.
  bool cut = false;
  TimePoint last_up{};  // of what was sent, so that order is kept
  TimePoint last_down{};
  // The agent's side.
  bool greeted = false, ordered = false, started = false, ending = false, gone = false;
  nanoseconds clock_error{0};
  int first_rank = 0;
  std::vector<Rank> ranks;
};

// What happens at a host or to the launcher; numbers say which.
enum class Kind {
  kConnect,
  kOrderArrives,
  kPrepared,
  kStartArrives,
  kRankEnds,
  kTerminateArrives,
  kGraceOver,
  kLinkEndArrives,
  kLeaseOver,
  kReport,
  kFault,
  kTick,
  kHeartbeatMissed
};

struct Item {
  TimePoint at;
  std::uint64_t number = 0;  // of equals the first comes first
  Kind kind = Kind::kTick;
  int host = 0;
  int value = 0;
  Event event = ClockTick{};  // kReport
  bool operator<(const Item& other) const {
    return at != other.at ? at > other.at : number > other.number;
  }
};

class SimulatedJob {
 public:
  SimulatedJob(std::uint64_t seed, bool with_history)
      : random_(seed), with_history_(with_history), state_(make_options(), now_) {}

  SimulationResult run();

 private:
  // --- chance
  int below(int limit) { return static_cast<int>(random_() % static_cast<std::uint64_t>(limit)); }
  bool one_in(int n) { return below(n) == 0; }
  Milliseconds ms(int least, int most) { return Milliseconds(least + below(most - least + 1)); }
  Milliseconds travel() { return one_in(12) ? ms(200, 2'500) : ms(0, 40); }

  JobState::Options make_options();
  void begin();
  void put(TimePoint at, Kind kind, int host, int value = 0, Event event = ClockTick{});
  void send_down(int host, Kind kind, int value = 0);
  void report(int host, Event event);
  void happen(const Item& item);
  void happen_at_host(const Item& item);
  void strike();
  void feed(const Event& event);
  void apply(const Action& action);
  void end_ranks(int host, Milliseconds grace);
  void rank_ended(int host, int index, int signal);
  void goodbye_if_over(int host);
  void lose(int host, const char* detail, TimePoint silent_since);
  void let_go(int host);
  void judge_end();
  void judge_cause();
  int missing_exits(int host) const;
  bool alive(int host) const { return !hosts_[host].gone; }
  void broke(const std::string& what) {
    if (verdict_.broken.empty()) verdict_.broken = what;
  }
  void note(const std::string& text);

  std::mt19937_64 random_;
  bool with_history_;
  TimePoint now_{};
  JobState::Options options_;
  Fault fault_ = Fault::kNone;
  TimePoint strikes_{};
  int victim_ = 0;       // a host
  int victim_rank_ = 0;  // within it
  bool noisy_ = false;   // events come twice, and from hosts that were let go
  JobState state_;
  std::vector<Host> hosts_;
  std::priority_queue<Item> items_;
  std::uint64_t numbers_ = 0;
  TimePoint tick_at_ = TimePoint::max();
  // What was seen.
  bool struck_ = false, prepared_ = false, started_ = false, finished_ = false, ended_ = false;
  int signals_ = 0, first_signal_ = 0;
  TimePoint over_by_ = TimePoint::max();
  SimulationResult verdict_;
};

}  // namespace hora::launcher::simulation
