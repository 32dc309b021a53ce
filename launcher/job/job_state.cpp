// SPDX-License-Identifier: Apache-2.0
// The state machine of a job: connecting, preparing, running, ending, done. Every event goes
// through step(), which returns actions; the class itself does no I/O and reads no clock. In an
// elastic job, ElasticState decides about failures, and this class only keeps track of the hosts.
#include "launcher/job/job_state.h"

#include <algorithm>
#include <csignal>

#include "launcher/failures/failure_code.h"
#include "launcher/failures/rank_exit_text.h"
#include "launcher/protocol/exit_code.h"
#include "launcher/text/units.h"

namespace hora::launcher {

namespace {

// The time that a host gets beyond the grace period to kill, sweep and say goodbye.
constexpr Milliseconds kSweepTime{3'000};
// How long the start waits, once a host has failed, for what the others have to say.
constexpr Milliseconds kOthersTimeout{5'000};

// A terminal's keys and its end reach a program as what they are: Python saves its work when it is
// interrupted. Every other request is a polite end.
int signal_for_ranks(const Cause& cause) {
  const bool is_users = cause.kind == Cause::Kind::kSignal;
  return is_users && (cause.signal == SIGINT || cause.signal == SIGHUP) ? cause.signal : SIGTERM;
}

}  // namespace

int exit_code_of(const RankExit& exit) {
  return exit.signal != 0 ? exit_code_of_signal(exit.signal) : exit.exit_code;
}

bool failed(const RankExit& exit) { return exit_code_of(exit) != 0; }

JobState::JobState(const Options& options, TimePoint now)
    : options_(options),
      hosts_(static_cast<std::size_t>(options.hosts), HostPhase::kConnecting),
      start_deadline_(now + options.start_timeout) {
  outcome_.elastic = options.elastic;
  // An elastic job has no common start: its hosts come and go, and each epoch starts its own ranks.
  if (options.elastic) phase_ = Phase::kRunning;
}

std::vector<Action> JobState::step(const Event& event, TimePoint now) {
  std::vector<Action> actions;
  // Events that were on their way when the job ended change nothing any more.
  if (phase_ == Phase::kDone) return actions;
  std::visit([&](const auto& e) { on(e, now, actions); }, event);
  return actions;
}

bool JobState::all_hosts_at_least(HostPhase phase) const {
  return std::all_of(hosts_.begin(), hosts_.end(), [&](HostPhase p) { return p >= phase; });
}

// Preparation waits for all hosts, because the choice of the network needs the hello of each.
void JobState::on(const HostGreeted& e, TimePoint now, std::vector<Action>& actions) {
  // max(): a greeting that comes late must not bring a host back that was dropped meanwhile.
  hosts_[e.host] = std::max(hosts_[e.host], HostPhase::kGreeted);
  settle_start(now, actions);
}

// No rank starts before all hosts are ready, so a failed start leaves no half job. The other hosts
// may report their problems, too: a user who sees one at a time waits for a connection each time.
void JobState::settle_start(TimePoint now, std::vector<Action>& actions) {
  if (phase_ != Phase::kConnecting && phase_ != Phase::kPreparing) return;
  const HostPhase wanted = phase_ == Phase::kConnecting ? HostPhase::kGreeted : HostPhase::kReady;
  auto& failures = outcome_.unreached;
  if (!all_hosts_at_least(wanted) && (!others_deadline_ || now < *others_deadline_)) return;
  // Hosts that have not answered are named, too: they may be the cause.
  if (!failures.empty()) {
    for (int host = 0; host < static_cast<int>(hosts_.size()); ++host) {
      if (hosts_[host] < wanted) outcome_.unanswered.push_back(host);
    }
    // In the order of the list, not of the answers.
    std::ranges::stable_sort(failures, {}, &Cause::host);
    Cause first = std::move(failures.front());
    failures.erase(failures.begin());
    return end(std::move(first), now, actions);
  }
  if (phase_ == Phase::kConnecting) {
    phase_ = Phase::kPreparing;
    actions.push_back(PrepareAll{});
    return;
  }
  phase_ = Phase::kRunning;
  was_started_ = true;
  for (HostPhase& host : hosts_) {
    if (host == HostPhase::kReady) host = HostPhase::kRunning;
  }
  // --timeout counts from here: a slow start has --start-timeout.
  if (options_.timeout) job_deadline_ = now + *options_.timeout;
  actions.push_back(StartAll{});
}

// The job needs no rank on this host after all.
void JobState::on(const HostUnneeded& e, TimePoint, std::vector<Action>& actions) {
  hosts_[e.host] = HostPhase::kFinished;
  actions.push_back(DropHost{e.host});
}

void JobState::on(const HostReady& e, TimePoint now, std::vector<Action>& actions) {
  hosts_[e.host] = std::max(hosts_[e.host], HostPhase::kReady);
  if (phase_ == Phase::kPreparing) settle_start(now, actions);
}

void JobState::on(const RankEnded& e, TimePoint now, std::vector<Action>& actions) {
  outcome_.exits[e.exit.rank] = e.exit;
  if (e.exit.terminated_by_us) agent_ended_ranks_ = true;
  // A rank that we ended ourselves is not a cause.
  if (!failed(e.exit) || e.exit.terminated_by_us) return;
  failures_[e.exit.rank] = {
      // The agents' clocks differ; the offset translates to the launcher's clock.
      std::chrono::nanoseconds(e.exit.clock_ns) + e.clock_offset, e.host};
  // While the job ends, ranks fail because the others are gone; settle_cause() sorts them out.
  if (phase_ == Phase::kEnding || options_.elastic || options_.keep_going) return;
  Cause cause;
  cause.kind = Cause::Kind::kRank;
  cause.host = e.host;
  cause.exit = e.exit;
  cause.exit_code = exit_code_of(e.exit);
  end(std::move(cause), now, actions);
}

void JobState::on(const HostRanksGone& e, TimePoint, std::vector<Action>&) {
  // The end was not requested before.
  if (phase_ != Phase::kEnding) return;
  hosts_[e.host] = std::max(hosts_[e.host], HostPhase::kRanksGone);
}

void JobState::on(const HostFinished& e, TimePoint now, std::vector<Action>& actions) {
  hosts_[e.host] = HostPhase::kFinished;
  outcome_.goodbyes[e.host] = e.goodbye;
  actions.push_back(DropHost{e.host});
  // The agent's protocol ends with a goodbye; one before the start is a failure.
  if (phase_ == Phase::kConnecting || phase_ == Phase::kPreparing) {
    Cause cause;
    cause.kind = Cause::Kind::kHost;
    cause.host = e.host;
    cause.failure = {std::string(failure::kAgent), "the agent ended before the job started", ""};
    cause.exit_code = kExitLauncher;
    end(std::move(cause), now, actions);
  }
  if (phase_ == Phase::kRunning && (agent_ended_ranks_ || e.missing_exits > 0) &&
      !options_.elastic) {
    Cause cause;
    cause.kind = Cause::Kind::kHost;
    cause.host = e.host;
    if (agent_ended_ranks_) {
      // We have not asked for this; a program on the host has: a batch system whose time limit has
      // passed, for one. An agent that has lost us reports that itself.
      cause.failure = {std::string(failure::kHostLost),
                       "its agent ended the ranks: it received a signal that ends it", ""};
    } else {
      cause.failure = {std::string(failure::kProtocol),
                       "its agent ended without reporting how " + std::to_string(e.missing_exits) +
                           " of its ranks ended",
                       ""};
    }
    cause.exit_code = kExitLauncher;
    end(std::move(cause), now, actions);
  }
  finish_if_over(actions);
}

// The agent reports a failure in its own words, which beats any guess of ours.
void JobState::on(const HostFailed& e, TimePoint now, std::vector<Action>& actions) {
  hosts_[e.host] = HostPhase::kLost;
  actions.push_back(DropHost{e.host});
  if (phase_ != Phase::kEnding && !options_.elastic) {
    Cause cause;
    cause.kind = Cause::Kind::kHost;
    cause.host = e.host;
    cause.failure = e.failure;
    // The host cannot provide what was asked for, which it reports before any rank starts.
    cause.exit_code = e.failure.code == failure::kUsage ? kExitUsage : kExitLauncher;
    if (phase_ == Phase::kConnecting || phase_ == Phase::kPreparing) {
      outcome_.unreached.push_back(std::move(cause));
      const bool waits_for_all = options_.asks_every_host && phase_ == Phase::kConnecting;
      if (!waits_for_all && !others_deadline_) {
        others_deadline_ = std::min(now + kOthersTimeout, start_deadline_);
      }
      settle_start(now, actions);
    } else {
      end(std::move(cause), now, actions);
    }
  }
  finish_if_over(actions);
}

void JobState::on(const HostLost& e, TimePoint now, std::vector<Action>& actions) {
  // The connection may close after the goodbye; that is not a loss.
  if (hosts_[e.host] == HostPhase::kFinished) return;
  // Its ranks end by the lease at the latest, but no message confirms it. The report says so.
  if (hosts_[e.host] != HostPhase::kRanksGone) outcome_.unconfirmed_hosts.push_back(e.host);
  hosts_[e.host] = HostPhase::kLost;
  actions.push_back(DropHost{e.host});
  Cause cause;
  cause.kind = Cause::Kind::kHost;
  cause.host = e.host;
  cause.failure = {std::string(failure::kHostLost), e.detail, ""};
  cause.exit_code = kExitLauncher;
  if (options_.elastic) return finish_if_over(actions);
  if (phase_ != Phase::kEnding) {
    end(std::move(cause), now, actions);
  } else if (outcome_.cause && outcome_.cause->kind == Cause::Kind::kRank &&
             outcome_.cause->host != e.host && e.silent_since < cause_time_) {
    // The host fell silent before the first rank failed, so that rank died of it.
    outcome_.cause = std::move(cause);
    cause_time_ = e.silent_since;
  }
  finish_if_over(actions);
}

void JobState::on(const LaunchFailed& e, TimePoint now, std::vector<Action>& actions) {
  if (phase_ == Phase::kEnding) return;
  Cause cause;
  cause.kind = Cause::Kind::kLaunch;
  cause.failure = e.failure;
  cause.exit_code = e.exit_code;
  end(std::move(cause), now, actions);
}

// A host that is added while the job ends counts as finished at once.
void JobState::on(const HostAdded&, TimePoint, std::vector<Action>&) {
  hosts_.push_back(phase_ == Phase::kEnding ? HostPhase::kFinished : HostPhase::kConnecting);
}

void JobState::on(const HostDismissed& e, TimePoint, std::vector<Action>& actions) {
  end_host(e.host, options_.grace, SIGTERM, actions);
  finish_if_over(actions);
}

void JobState::on(const ElasticBegun&, TimePoint now, std::vector<Action>&) {
  was_started_ = true;
  if (options_.timeout) job_deadline_ = now + *options_.timeout;
}

void JobState::on(const ElasticOver& e, TimePoint now, std::vector<Action>& actions) {
  if (phase_ == Phase::kEnding) return;
  // Unlike end(): an elastic job that has done its work ends without a cause.
  outcome_.cause = e.cause;
  cause_time_ = now;
  phase_ = Phase::kEnding;
  terminate_hosts(now, options_.grace, SIGTERM, actions);
  finish_if_over(actions);
}

// The first signal ends the job with the grace period, the second kills at once, and the third
// leaves.
void JobState::on(const UserSignal& e, TimePoint now, std::vector<Action>& actions) {
  ++user_signals_;
  if (phase_ != Phase::kEnding) {
    Cause cause;
    cause.kind = Cause::Kind::kSignal;
    cause.signal = e.signal;
    cause.exit_code = exit_code_of_signal(e.signal);
    end(std::move(cause), now, actions);
  } else if (user_signals_ <= 2) {
    // Second signal: kill now.
    terminate_hosts(now, Milliseconds(0), SIGTERM, actions);
  } else {
    // Third signal: leave the hosts that do not answer to their lease.
    end_deadline_ = now;
    on(ClockTick{}, now, actions);
  }
}

// The reader of our output has gone (`horarun ... | head`), so the job is not needed any more.
void JobState::on(const OutputClosed&, TimePoint now, std::vector<Action>& actions) {
  if (phase_ == Phase::kEnding) return;
  Cause cause;
  cause.kind = Cause::Kind::kOutputClosed;
  // The code that a shell reports for a program that SIGPIPE ended.
  cause.exit_code = exit_code_of_signal(SIGPIPE);
  end(std::move(cause), now, actions);
}

// The agents' remaining output is lost.
void JobState::on(const OutputAbandoned&, TimePoint now, std::vector<Action>& actions) {
  if (phase_ != Phase::kEnding) return;
  end_deadline_ = now;
  on(ClockTick{}, now, actions);
}

void JobState::on(const StillShipping&, TimePoint now, std::vector<Action>&) {
  start_deadline_ = now + options_.start_timeout;
}

void JobState::on(const StillEnding&, TimePoint now, std::vector<Action>&) {
  if (phase_ == Phase::kEnding) end_deadline_ = now + kSweepTime;
}

// Each phase has one deadline, see next_deadline(). An early tick does nothing.
void JobState::on(const ClockTick& e, TimePoint now, std::vector<Action>& actions) {
  const auto time_out = [&](std::string_view code, std::string message) {
    Cause cause;
    cause.kind = Cause::Kind::kTimeout;
    cause.failure = {std::string(code), std::move(message), ""};
    cause.exit_code = kExitTimeout;
    end(std::move(cause), now, actions);
  };
  if (phase_ < Phase::kRunning && others_deadline_) {
    settle_start(now, actions);
  } else if (phase_ < Phase::kRunning && now >= start_deadline_) {
    time_out(failure::kStartTimeout, "not every host was ready within " +
                                         std::to_string(options_.start_timeout.count() / 1000) +
                                         " s (--start-timeout)");
  } else if (phase_ == Phase::kRunning && job_deadline_ && now >= *job_deadline_) {
    time_out(failure::kTimeout,
             "the job ran longer than --timeout " + format_duration(*options_.timeout) + " allows");
  } else if (phase_ == Phase::kEnding && end_deadline_ && now >= *end_deadline_) {
    give_up_hosts(e.output_waits, actions);
    if (e.output_waits) end_deadline_ = now + kSweepTime;
  }
  finish_if_over(actions);
}

// Hosts that did not confirm the end in time: their agents end the ranks when the lease runs out.
// The others may take as long as the reader of their output.
void JobState::give_up_hosts(bool output_waits, std::vector<Action>& actions) {
  for (int host = 0; host < static_cast<int>(hosts_.size()); ++host) {
    if (hosts_[host] >= HostPhase::kFinished) continue;
    const bool is_confirmed = hosts_[host] == HostPhase::kRanksGone;
    if (is_confirmed && output_waits) continue;
    hosts_[host] = is_confirmed ? HostPhase::kFinished : HostPhase::kLost;
    if (!is_confirmed) outcome_.unconfirmed_hosts.push_back(host);
    actions.push_back(DropHost{host});
  }
}

// The one way from running to ending. The job stays in kEnding until every host has confirmed that
// its ranks are gone, or end_deadline_ passes: an exit code must not come before the processes end.
void JobState::end(Cause cause, TimePoint now, std::vector<Action>& actions) {
  outcome_.cause = std::move(cause);
  cause_time_ = now;
  phase_ = Phase::kEnding;
  terminate_hosts(now, options_.grace, signal_for_ranks(*outcome_.cause), actions);
  finish_if_over(actions);
}

void JobState::end_host(int host, Milliseconds grace, int signal, std::vector<Action>& actions) {
  if (hosts_[host] == HostPhase::kConnecting) {
    // There is no agent yet, so nothing runs there; what is on its way ends with the link.
    hosts_[host] = HostPhase::kFinished;
    actions.push_back(DropHost{host});
  } else if (hosts_[host] < HostPhase::kFinished) {
    actions.push_back(TerminateHost{host, grace, signal});
  }
}

void JobState::terminate_hosts(TimePoint now, Milliseconds grace, int signal,
                               std::vector<Action>& actions) {
  for (int host = 0; host < static_cast<int>(hosts_.size()); ++host) {
    end_host(host, grace, signal, actions);
  }
  const Milliseconds time_limit = (signal == SIGTERM ? grace : 2 * grace) + kSweepTime;
  // A repeated request may move the end forward, but never back.
  end_deadline_ = std::min(end_deadline_.value_or(TimePoint::max()), now + time_limit);
}

void JobState::finish_if_over(std::vector<Action>& actions) {
  if (phase_ == Phase::kDone || !all_hosts_at_least(HostPhase::kFinished)) return;
  // In an elastic job, other hosts may still come.
  if (options_.elastic && phase_ != Phase::kEnding) return;
  settle_cause();
  phase_ = Phase::kDone;
  actions.push_back(Finish{});
}

// The failure that was reported first need not have happened first, because reports travel at
// different speeds. Among the ranks that failed by themselves, the earliest one is the cause.
void JobState::settle_cause() {
  if (options_.keep_going && !outcome_.cause && !failures_.empty()) {
    outcome_.cause.emplace().kind = Cause::Kind::kRank;
  }
  if (!outcome_.cause || outcome_.cause->kind != Cause::Kind::kRank || options_.elastic) return;
  auto earliest =
      std::min_element(failures_.begin(), failures_.end(),
                       [](const auto& a, const auto& b) { return a.second.when < b.second.when; });
  if (earliest == failures_.end()) return;
  // What cannot be started fails everywhere at the same moment: in the order of the ranks.
  const RankExit& first = outcome_.exits.at(earliest->first);
  if (first.stage != SpawnStage::kNone) {
    for (auto rank = failures_.begin(); rank != earliest; ++rank) {
      const RankExit& exit = outcome_.exits.at(rank->first);
      if (exit.stage != first.stage || exit.code != first.code) continue;
      earliest = rank;
      break;
    }
  }
  // One that says which rank left before it only follows, however soon it noticed.
  for (std::size_t steps = 0; steps < failures_.size(); ++steps) {
    const auto left = rank_that_left(outcome_.exits.at(earliest->first).last_stderr);
    const auto earlier = failures_.find(left.value_or(-1));
    if (earlier == failures_.end()) break;
    earliest = earlier;
  }
  outcome_.cause->exit = outcome_.exits.at(earliest->first);
  outcome_.cause->exit_code = exit_code_of(outcome_.cause->exit);
  outcome_.cause->host = earliest->second.host;
}

// An end by a batch system looks like this; so do many others.
bool JobState::may_be_ended_from_outside() const {
  if (!outcome_.cause) return false;
  const Cause& cause = *outcome_.cause;
  switch (cause.kind) {
    case Cause::Kind::kHost:
      return was_started_;
    case Cause::Kind::kSignal:
      return cause.signal == SIGTERM || cause.signal == SIGHUP;
    case Cause::Kind::kRank:
      // A program that handles SIGTERM ends with a code of its own.
      return cause.exit.signal == SIGTERM || cause.exit.signal == SIGKILL ||
             cause.exit.exit_code > kExitSignalBase;
    default:
      return outcome_.elastic;
  }
}

// The ranks' own failures remain in the list of exits.
void JobState::set_cause(Failure failure) {
  Cause cause;
  cause.kind = Cause::Kind::kLaunch;
  cause.failure = std::move(failure);
  cause.exit_code = kExitLauncher;
  outcome_.cause = std::move(cause);
}

std::optional<TimePoint> JobState::next_deadline() const {
  switch (phase_) {
    case Phase::kConnecting:
    case Phase::kPreparing:
      return std::min(start_deadline_, others_deadline_.value_or(TimePoint::max()));
    case Phase::kRunning:
      return job_deadline_;
    case Phase::kEnding:
      return end_deadline_;
    case Phase::kDone:
      return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace hora::launcher
