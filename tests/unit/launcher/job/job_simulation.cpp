// SPDX-License-Identifier: Apache-2.0
// The launcher of a simulated life, which follows the real JobState, and the judgement on both.
#include "tests/unit/launcher/job/job_simulation.h"

#include <csignal>

#include "tests/unit/launcher/job/simulated_job.h"

namespace hora::launcher::simulation {

// --- the launcher --------------------------------------------------------------------------------

int SimulatedJob::missing_exits(int h) const {
  int missing = 0;
  for (std::size_t i = 0; i < hosts_[h].ranks.size(); ++i) {
    missing += state_.outcome().exits.count(hosts_[h].first_rank + static_cast<int>(i)) == 0;
  }
  return missing;
}

void SimulatedJob::happen(const Item& item) {
  switch (item.kind) {
    case Kind::kReport: {
      if (hosts_[item.host].let_go && !noisy_) return;  // a closed link reports nothing
      if (const auto* finished = std::get_if<HostFinished>(&item.event)) {
        return feed(HostFinished{finished->host, finished->goodbye, missing_exits(finished->host)});
      }
      return feed(item.event);
    }
    case Kind::kHeartbeatMissed:
      if (hosts_[item.host].let_go) return;
      return feed(HostLost{item.host, "no sign of life", TimePoint{} + Milliseconds(item.value)});
    case Kind::kFault:
      if (item.host >= 0) return strike();
      if (state_.ending()) feed(UserSignal{2});
      return;
    case Kind::kTick:
      if (item.at == tick_at_) {
        tick_at_ = TimePoint::max();
        feed(ClockTick{});
      }
      return;
    default:
      return happen_at_host(item);
  }
}

void SimulatedJob::feed(const Event& event) {
  ++verdict_.events;
  note("event " + std::to_string(event.index()));
  if (std::holds_alternative<UserSignal>(event)) ++signals_;
  const bool was_ending = state_.ending();
  const bool was_done = state_.done();
  const auto actions = state_.step(event, now_);
  if (was_done && !actions.empty()) broke("an action after the end");
  for (const Action& action : actions) apply(action);
  if (!ended_ && (state_.ending() || state_.done())) {
    ended_ = true;
    // A rank that is interrupted has as long before it is terminated as after that.
    const auto& cause = state_.outcome().cause;
    over_by_ = now_ + (cause && cause->signal == SIGINT ? 2 : 1) * options_.grace + kSweep + kSlack;
  }
  if (was_ending && signals_ >= 3 && std::holds_alternative<UserSignal>(event) && !state_.done()) {
    // The first signal may have been another's fault: two more after it end the wait.
    if (fault_ == Fault::kUserSignal) broke("the third signal did not end the wait");
  }
  const auto deadline = state_.next_deadline();
  if (deadline && *deadline != tick_at_) {
    tick_at_ = std::max(*deadline, now_) + Milliseconds(below(10));
    put(tick_at_, Kind::kTick, 0);
  } else if (!deadline) {
    tick_at_ = TimePoint::max();
  }
}

void SimulatedJob::apply(const Action& action) {
  note("  action " + std::to_string(action.index()));
  if (finished_) broke("an action behind Finish");
  const bool ending = state_.ending() || state_.done();
  if (std::holds_alternative<PrepareAll>(action)) {
    if (prepared_ || ending) broke("PrepareAll twice, or behind the end");
    prepared_ = true;
    for (int h = 0; h < options_.hosts; ++h) {
      if (hosts_[h].let_go) broke("PrepareAll without every host");
      send_down(h, Kind::kOrderArrives);
    }
  } else if (std::holds_alternative<StartAll>(action)) {
    if (started_ || ending || !prepared_) broke("StartAll twice, early, or behind the end");
    started_ = true;
    for (int h = 0; h < options_.hosts; ++h) send_down(h, Kind::kStartArrives);
  } else if (const auto* terminate = std::get_if<TerminateHost>(&action)) {
    Host& host = hosts_[terminate->host];
    if (host.let_go) broke("an order to a host that was let go");
    if (!ending) broke("TerminateHost while the job goes on");
    host.reported = true;
    const int stages = terminate->signal == SIGTERM ? 1 : 2;
    send_down(terminate->host, Kind::kTerminateArrives,
              stages * static_cast<int>(terminate->grace.count()));
  } else if (const auto* drop = std::get_if<DropHost>(&action)) {
    let_go(drop->host);
  } else {
    finished_ = true;
    if (now_ > over_by_) broke("the job ended behind its deadline");
    for (int h = 0; h < options_.hosts; ++h) {
      if (!hosts_[h].let_go) broke("host " + std::to_string(h) + " was never let go");
    }
  }
}

SimulationResult SimulatedJob::run() {
  begin();
  if (const auto deadline = state_.next_deadline()) put(tick_at_ = *deadline, Kind::kTick, 0);
  std::size_t count = 0;
  while (!items_.empty() && verdict_.broken.empty()) {
    const Item item = items_.top();
    items_.pop();
    now_ = item.at;
    if (now_ > over_by_ && !state_.done()) broke("the job is not over by its deadline");
    happen(item);
    if (++count > kMostEvents) broke("it never ends");
  }
  if (verdict_.broken.empty()) judge_end();
  verdict_.fault = kFaultNames[static_cast<int>(fault_)];
  verdict_.failed = state_.outcome().exit_code() != 0;
  if (!verdict_.broken.empty()) {
    verdict_.broken += " (what went wrong first: " + verdict_.fault + ")";
  }
  return std::move(verdict_);
}

void SimulatedJob::judge_end() {
  if (!state_.done() || !finished_)
    return broke("nothing happens any more, and the job is not over");
  for (int h = 0; h < options_.hosts; ++h) {
    for (const Rank& rank : hosts_[h].ranks) {
      if (rank.running) return broke("a rank of host " + std::to_string(h) + " runs on");
    }
  }
  const JobOutcome& outcome = state_.outcome();
  std::size_t ranks = 0;
  for (const Host& host : hosts_) ranks += host.ranks.size();
  const bool all_well =
      outcome.exits.size() == ranks &&
      std::none_of(outcome.exits.begin(), outcome.exits.end(), [](const auto& exit) {
        return failed(exit.second) || exit.second.terminated_by_us;
      });
  if (outcome.exit_code() == 0 && !all_well)
    return broke("exit code 0, and not every rank has succeeded");
  if (!outcome.cause && !all_well) return broke("a failure without a cause");
  std::vector<int> unconfirmed = outcome.unconfirmed_hosts;
  std::sort(unconfirmed.begin(), unconfirmed.end());
  if (std::adjacent_find(unconfirmed.begin(), unconfirmed.end()) != unconfirmed.end()) {
    return broke("a host is listed twice");
  }
  judge_cause();
}

void SimulatedJob::judge_cause() {
  const JobOutcome& outcome = state_.outcome();
  if (fault_ == Fault::kNone && outcome.cause) return broke("a cause where nothing went wrong");
  if (!outcome.cause) return;
  const Cause& cause = *outcome.cause;
  using K = Cause::Kind;
  const auto expect = [&](bool right, int code) {
    if (!right)
      return broke("another cause: kind " + std::to_string(static_cast<int>(cause.kind)) +
                   ", host " + std::to_string(cause.host));
    if (cause.exit_code != code) broke("exit code " + std::to_string(cause.exit_code));
  };
  const bool of_victim = cause.host == victim_;
  switch (fault_) {
    case Fault::kRankFails: {
      const int rank = hosts_[victim_].first_rank + victim_rank_;
      return expect(cause.kind == K::kRank && cause.exit.rank == rank && of_victim,
                    hosts_[victim_].ranks[victim_rank_].code);
    }
    case Fault::kHostCrashes:
    case Fault::kLinkCut:
      // The time to end may be over before the lease is: then a rank that died of it is all that is
      // known, and the host is listed.
      if (cause.kind == K::kRank && !of_victim) {
        const auto& lost = outcome.unconfirmed_hosts;
        return expect(std::find(lost.begin(), lost.end(), victim_) != lost.end(), 1);
      }
      return expect(cause.kind == K::kHost && of_victim, 125);
    case Fault::kLinkReset:
    case Fault::kAgentFails:
    case Fault::kSilentGoodbye:
      return expect(cause.kind == K::kHost && of_victim, 125);
    case Fault::kLauncherStopped:
      return expect(cause.kind == K::kHost, 125);
    case Fault::kNeverConnects:
    case Fault::kNeverReady:
    case Fault::kJobTooLong:
      return expect(cause.kind == K::kTimeout, 124);
    case Fault::kUserSignal:
      return expect(cause.kind == K::kSignal && cause.signal == first_signal_, 128 + first_signal_);
    case Fault::kOutputClosed:
      return expect(cause.kind == K::kOutputClosed, 141);
    case Fault::kLaunchFails:
      return expect(cause.kind == K::kLaunch, 125);
    default:
      return;
  }
}

SimulationResult live(std::uint64_t seed, bool with_history) {
  return SimulatedJob(seed, with_history).run();
}

}  // namespace hora::launcher::simulation
