// SPDX-License-Identifier: Apache-2.0
// The life of a job as a state machine: events and the time go in, actions come out. [pure] The
// supervisor carries them out. Everything that decides which rank is ended, when and why is here,
// so that it is tested without a process and without a sleep.
#pragma once

#include <chrono>
#include <csignal>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "launcher/protocol/messages.h"
#include "rendezvous/base/time.h"

namespace hora::launcher {

using hora::Milliseconds;
using TimePoint = Clock::time_point;

// Why the job ended other than by success: the first cause, not its consequences.
struct Cause {
  enum class Kind { kRank, kHost, kLaunch, kTimeout, kSignal, kOutputClosed };
  Kind kind = Kind::kLaunch;
  int host = -1;
  RankExit exit;      // kRank
  Failure failure;    // kHost, kLaunch, kTimeout
  int signal = 0;     // kSignal
  int exit_code = 0;  // of the launcher
};

// --- events --------------------------------------------------------------------------------------

// Hello arrived, and the bundle has arrived or is on its way.
struct HostGreeted {
  int host;
};
// It has greeted, but gets no rank.
struct HostUnneeded {
  int host;
};
// Its order is prepared.
struct HostReady {
  int host;
};
struct RankEnded {
  int host;
  RankExit exit;
  std::chrono::nanoseconds clock_offset{0};
};
struct HostFinished {
  int host;
  Goodbye goodbye;
  int missing_exits = 0;  // ranks of the host whose end was not reported
};
// A job that is being ended: no process of it runs there any more. Output is still to come.
struct HostRanksGone {
  int host;
};
struct HostFailed {
  int host;
  Failure failure;
};
// The link ended without a goodbye, or was silent for too long.
struct HostLost {
  int host;
  std::string detail;
  TimePoint silent_since;
};
// No host's fault: no common network, no room for output files.
struct LaunchFailed {
  Failure failure;
  int exit_code;
};
// In an elastic job (launcher/elastic/), hosts come and go without this state: a host is being
// connected; it is to be ended; the ranks of the first epoch run; the job is over.
struct HostAdded {};
struct HostDismissed {
  int host;
};
struct ElasticBegun {};
struct ElasticOver {
  std::optional<Cause> cause;  // none: success
};
// INT, TERM, HUP, ...; QUIT while the job is being ended.
struct UserSignal {
  int signal;
};
// The reader of our stdout has gone.
struct OutputClosed {};
// Of a job that is being ended: its output has no reader.
struct OutputAbandoned {};
// next_deadline() has passed.
struct ClockTick {
  bool output_waits = false;  // for its reader
};
// Something of what hosts lack has reached them since the last time: the start has its time again.
struct StillShipping {};
// next_deadline() has passed, but a host that is being ended gets no time: it will confirm its end.
struct StillEnding {};

using Event = std::variant<HostGreeted, HostUnneeded, HostReady, RankEnded, HostRanksGone,
                           HostFinished, HostFailed, HostLost, LaunchFailed, HostAdded,
                           HostDismissed, ElasticBegun, ElasticOver, UserSignal, OutputClosed,
                           OutputAbandoned, ClockTick, StillShipping, StillEnding>;

// --- actions -------------------------------------------------------------------------------------

// All hosts have greeted: choose the network, send orders.
struct PrepareAll {};
// All hosts are ready: start the ranks.
struct StartAll {};
// `signal`, then TERM after `grace` if that is another one, then KILL.
struct TerminateHost {
  int host;
  Milliseconds grace;
  int signal = SIGTERM;
};
// Close the link; an agent at its end ends by itself.
struct DropHost {
  int host;
};
// Nothing is left to wait for.
struct Finish {};

using Action = std::variant<PrepareAll, StartAll, TerminateHost, DropHost, Finish>;

// --- outcome -------------------------------------------------------------------------------------

struct JobOutcome {
  std::optional<Cause> cause;          // none: every rank succeeded
  std::vector<Cause> unreached;        // other hosts that failed before the start
  std::vector<int> unanswered;         // hosts that were not waited for when these had failed
  std::map<int, RankExit> exits;       // by rank; all that are known
  std::vector<int> unconfirmed_hosts;  // did not confirm the end of their ranks
  std::map<int, Goodbye> goodbyes;     // by host
  bool elastic = false;  // the exits are those of all epochs, by the number of the process
  int exit_code() const { return cause ? cause->exit_code : 0; }
};

// 128 + signal, 126/127 for a program that could not be started, else its own code.
int exit_code_of(const RankExit& exit);
bool failed(const RankExit& exit);

class JobState {
 public:
  struct Options {
    int hosts = 1;
    Milliseconds grace{5'000};
    Milliseconds start_timeout{30'000};
    std::optional<Milliseconds> timeout;  // of the whole job, from its start
    // Hosts are added and may be lost, and the job goes on until its end is announced.
    bool elastic = false;
    // A rank that fails does not end the others; the first one that failed is the cause at the end.
    bool keep_going = false;
    // A host that cannot be reached ends the job only when every other has answered or failed, too,
    // however long that takes.
    bool asks_every_host = false;
  };

  JobState(const Options& options, TimePoint now);

  std::vector<Action> step(const Event& event, TimePoint now);
  // When to call step(ClockTick{}) at the latest.
  std::optional<TimePoint> next_deadline() const;

  bool started() const { return was_started_; }
  bool ending() const { return phase_ == Phase::kEnding; }
  bool done() const { return phase_ == Phase::kDone; }
  // A job that is ending: no rank is left, according to the hosts; only output may be.
  bool ranks_gone() const { return all_hosts_at_least(HostPhase::kRanksGone); }
  // Complete once done().
  const JobOutcome& outcome() const { return outcome_; }
  // After done(): whether the job may have been ended from outside, by signals or by taking hosts
  // away; and that this was so.
  bool may_be_ended_from_outside() const;
  void set_cause(Failure failure);
  // Of a job that has failed.
  void set_exit_code(int exit_code) {
    if (outcome_.cause) outcome_.cause->exit_code = exit_code;
  }

 private:
  enum class Phase { kConnecting, kPreparing, kRunning, kEnding, kDone };
  enum class HostPhase { kConnecting, kGreeted, kReady, kRunning, kRanksGone, kFinished, kLost };

  void on(const HostGreeted&, TimePoint, std::vector<Action>&);
  void on(const HostUnneeded&, TimePoint, std::vector<Action>&);
  void on(const HostReady&, TimePoint, std::vector<Action>&);
  void on(const RankEnded&, TimePoint, std::vector<Action>&);
  void on(const HostRanksGone&, TimePoint, std::vector<Action>&);
  void on(const HostFinished&, TimePoint, std::vector<Action>&);
  void on(const HostFailed&, TimePoint, std::vector<Action>&);
  void on(const HostLost&, TimePoint, std::vector<Action>&);
  void on(const LaunchFailed&, TimePoint, std::vector<Action>&);
  void on(const HostAdded&, TimePoint, std::vector<Action>&);
  void on(const HostDismissed&, TimePoint, std::vector<Action>&);
  void on(const ElasticBegun&, TimePoint, std::vector<Action>&);
  void on(const ElasticOver&, TimePoint, std::vector<Action>&);
  void on(const UserSignal&, TimePoint, std::vector<Action>&);
  void on(const OutputClosed&, TimePoint, std::vector<Action>&);
  void on(const OutputAbandoned&, TimePoint, std::vector<Action>&);
  void on(const ClockTick&, TimePoint, std::vector<Action>&);
  void on(const StillShipping&, TimePoint, std::vector<Action>&);
  void on(const StillEnding&, TimePoint, std::vector<Action>&);

  void settle_start(TimePoint now, std::vector<Action>& actions);
  void end(Cause cause, TimePoint now, std::vector<Action>& actions);
  void give_up_hosts(bool output_waits, std::vector<Action>& actions);
  void end_host(int host, Milliseconds grace, int signal, std::vector<Action>& actions);
  void terminate_hosts(TimePoint now, Milliseconds grace, int signal, std::vector<Action>& actions);
  void finish_if_over(std::vector<Action>& actions);
  void settle_cause();
  bool all_hosts_at_least(HostPhase phase) const;

  Options options_;
  Phase phase_ = Phase::kConnecting;
  bool was_started_ = false;
  bool agent_ended_ranks_ = false;  // some rank's end was its agent's work
  std::vector<HostPhase> hosts_;
  TimePoint start_deadline_;
  std::optional<TimePoint> others_deadline_;  // a host has failed before the start
  std::optional<TimePoint> job_deadline_;
  std::optional<TimePoint> end_deadline_;
  int user_signals_ = 0;
  TimePoint cause_time_{};
  struct RankFailure {
    std::chrono::nanoseconds when;  // on the launcher's wall clock
    int host;
  };
  std::map<int, RankFailure> failures_;  // by rank; those that failed by themselves
  JobOutcome outcome_;
};

}  // namespace hora::launcher
