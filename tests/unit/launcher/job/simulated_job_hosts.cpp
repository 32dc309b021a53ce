// SPDX-License-Identifier: Apache-2.0
// The hosts of a simulated life, the network between, and their failures.
#include "tests/unit/launcher/job/simulated_job.h"

namespace hora::launcher::simulation {

JobState::Options SimulatedJob::make_options() {
  options_.hosts = 1 + below(one_in(4) ? 12 : 4);
  options_.grace = one_in(5) ? Milliseconds(0) : ms(100, 5'000);
  options_.start_timeout = ms(2'000, 30'000);
  if (one_in(4)) options_.timeout = ms(1'000, 60'000);
  return options_;
}

void SimulatedJob::begin() {
  fault_ = one_in(6) ? Fault::kNone : static_cast<Fault>(below(static_cast<int>(Fault::kCount)));
  if (fault_ == Fault::kJobTooLong) options_.timeout = ms(500, 10'000);
  // Without a fault nothing may be too slow.
  const bool calm = fault_ != Fault::kNeverConnects && fault_ != Fault::kNeverReady;
  if (calm) options_.start_timeout = Milliseconds(60'000);
  if (fault_ != Fault::kJobTooLong) options_.timeout.reset();
  state_ = JobState(options_, now_);
  noisy_ = one_in(5);
  hosts_.resize(static_cast<std::size_t>(options_.hosts));
  victim_ = below(options_.hosts);
  int ranks = 0;
  for (int h = 0; h < options_.hosts; ++h) {
    Host& host = hosts_[h];
    host.first_rank = ranks;
    host.ranks.resize(1 + static_cast<std::size_t>(below(4)));
    for (Rank& rank : host.ranks) rank.stubborn = one_in(6);
    ranks += static_cast<int>(host.ranks.size());
    host.clock_error = std::chrono::milliseconds(below(4'000) - 2'000);
    if (fault_ == Fault::kNeverConnects && h == victim_) continue;
    put(now_ + ms(0, one_in(8) ? 1'900 : 200), Kind::kConnect, h);
  }
  victim_rank_ = below(static_cast<int>(hosts_[victim_].ranks.size()));
  // Some strike before the start, most of them while ranks run.
  strikes_ = now_ + ms(0, one_in(3) ? 500 : 8'000);
  switch (fault_) {
    case Fault::kNone:
    case Fault::kRankFails:
    case Fault::kNeverConnects:
    case Fault::kNeverReady:
    case Fault::kJobTooLong:
    case Fault::kSilentGoodbye:
    case Fault::kCount:
      break;  // they are in the nature of a host
    default:
      put(strikes_, Kind::kFault, victim_);
  }
  const int extra = fault_ == Fault::kUserSignal ? below(4) : (one_in(6) ? 1 + below(3) : 0);
  TimePoint at = strikes_;
  for (int i = 0; i < extra && fault_ != Fault::kNone; ++i) {
    at += ms(1, 4'000);
    put(at, Kind::kFault, -1);  // an impatient user, once the job ends
  }
}

void SimulatedJob::put(TimePoint at, Kind kind, int host, int value, Event event) {
  items_.push({std::max(at, now_), ++numbers_, kind, host, value, std::move(event)});
}

void SimulatedJob::note(const std::string& text) {
  if (!with_history_) return;
  const auto ms = std::chrono::duration_cast<Milliseconds>(now_.time_since_epoch()).count();
  verdict_.history += std::to_string(ms) + " ms  " + text + "\n";
}

// --- the network ---------------------------------------------------------------------------------

void SimulatedJob::send_down(int h, Kind kind, int value) {
  Host& host = hosts_[h];
  if (host.cut) return;
  host.last_down = std::max(host.last_down, now_ + travel());
  put(host.last_down, kind, h, value);
}

void SimulatedJob::report(int h, Event event) {
  Host& host = hosts_[h];
  if (host.cut) return;
  host.last_up = std::max(host.last_up, now_ + travel());
  put(host.last_up, Kind::kReport, h, 0, event);
  if (noisy_ && one_in(4)) put(host.last_up + travel(), Kind::kReport, h, 1, std::move(event));
}

void SimulatedJob::lose(int h, const char* detail, TimePoint silent_since) {
  put(now_, Kind::kReport, h, 0, HostLost{h, detail, silent_since});
}

void SimulatedJob::let_go(int h) {
  Host& host = hosts_[h];
  if (!host.let_go) send_down(h, Kind::kLinkEndArrives);
  host.let_go = true;
}

// --- hosts ---------------------------------------------------------------------------------------

void SimulatedJob::end_ranks(int h, Milliseconds grace) {
  Host& host = hosts_[h];
  host.ending = true;
  for (int i = 0; i < static_cast<int>(host.ranks.size()); ++i) {
    Rank& rank = host.ranks[i];
    if (!rank.running) continue;
    if (rank.stubborn || grace.count() == 0) continue;
    rank.end = now_ + std::min(ms(0, 300), grace);
    put(rank.end, Kind::kRankEnds, h, i);
  }
  put(now_ + grace, Kind::kGraceOver, h);
  goodbye_if_over(h);
}

void SimulatedJob::rank_ended(int h, int index, int signal) {
  Host& host = hosts_[h];
  Rank& rank = host.ranks[index];
  rank.running = false;
  RankExit exit;
  exit.rank = host.first_rank + index;
  exit.terminated_by_us = host.ending;
  exit.signal = signal != 0 ? signal : (host.ending ? 15 : 0);
  exit.exit_code = exit.signal == 0 ? rank.code : 0;
  exit.clock_ns = std::chrono::nanoseconds(now_.time_since_epoch() - host.clock_error).count();
  const auto offset = std::chrono::duration_cast<Milliseconds>(host.clock_error);
  if (fault_ != Fault::kSilentGoodbye || h != victim_ || index != victim_rank_) {
    report(h, RankEnded{h, exit, offset});
  }
  goodbye_if_over(h);
}

void SimulatedJob::goodbye_if_over(int h) {
  Host& host = hosts_[h];
  const bool running = std::any_of(host.ranks.begin(), host.ranks.end(),
                                   [](const Rank& rank) { return rank.running; });
  if (running || host.gone || !(host.started || host.ending)) return;
  host.gone = true;
  report(h, HostFinished{h, {}});
}

void SimulatedJob::happen_at_host(const Item& item) {
  Host& host = hosts_[item.host];
  if (host.gone) return;
  switch (item.kind) {
    case Kind::kConnect:
      host.greeted = true;
      return report(item.host, HostGreeted{item.host});
    case Kind::kOrderArrives:
      if (host.ending) return;
      host.ordered = true;
      if (fault_ == Fault::kNeverReady && item.host == victim_) return;
      return put(now_ + ms(0, 300), Kind::kPrepared, item.host);
    case Kind::kPrepared:
      if (host.ending) return;
      return report(item.host, HostReady{item.host});
    case Kind::kStartArrives: {
      if (host.ending) return;
      if (!host.ordered) broke("a start before the order");
      host.started = true;
      const bool long_job = fault_ == Fault::kJobTooLong || fault_ == Fault::kLauncherStopped;
      const bool stays = long_job || (struck_ ? false : strikes_ > now_ && fault_ != Fault::kNone);
      for (int i = 0; i < static_cast<int>(host.ranks.size()); ++i) {
        Rank& rank = host.ranks[i];
        rank.running = true;
        rank.end = now_ + (stays ? Milliseconds(1'000'000) : ms(0, 5'000));
        if (fault_ == Fault::kRankFails && item.host == victim_ && i == victim_rank_) {
          rank.end = now_ + ms(0, 5'000);
          rank.code = 1 + below(120);
        } else if (fault_ == Fault::kRankFails && !one_in(4)) {
          rank.end = now_ + Milliseconds(1'000'000);  // waits for the one that fails
        }
        put(rank.end, Kind::kRankEnds, item.host, i);
      }
      return;
    }
    case Kind::kRankEnds: {
      Rank& rank = host.ranks[item.value];
      if (rank.running && rank.end == item.at) rank_ended(item.host, item.value, 0);
      return;
    }
    case Kind::kTerminateArrives:
      return end_ranks(item.host, Milliseconds(item.value));
    case Kind::kLinkEndArrives:
    case Kind::kLeaseOver:
      return end_ranks(item.host, options_.grace);
    case Kind::kGraceOver:
      for (int i = 0; i < static_cast<int>(host.ranks.size()); ++i) {
        if (host.ranks[i].running) rank_ended(item.host, i, 9);
      }
      return;
    default:
      return;
  }
}

// --- failures
// -------------------------------------------------------------------------------------

void SimulatedJob::strike() {
  if (state_.done()) return;
  struck_ = true;
  Host& host = hosts_[victim_];
  note(std::string("FAULT: ") + kFaultNames[static_cast<int>(fault_)] + ", host " +
       std::to_string(victim_));
  switch (fault_) {
    case Fault::kHostCrashes:
    case Fault::kLinkCut: {
      host.cut = true;
      if (fault_ == Fault::kHostCrashes) {
        host.gone = true;
        for (Rank& rank : host.ranks) rank.running = false;
      } else {
        put(now_ + kLease, Kind::kLeaseOver, victim_);
      }
      if (host.greeted) {
        const TimePoint received = std::max(TimePoint{}, now_ - ms(0, 2'500));
        put(now_ + kLease, Kind::kHeartbeatMissed, victim_,
            static_cast<int>(
                std::chrono::duration_cast<Milliseconds>(received.time_since_epoch()).count()));
      } else {
        put(now_ + ms(500, 10'000), Kind::kReport, victim_, 0,
            HostFailed{victim_, {std::string(failure::kConnectTimeout), "no answer", ""}});
      }
      break;
    }
    case Fault::kLinkReset:
      if (host.greeted) {
        lose(victim_, "reset", now_);
      } else {
        put(now_, Kind::kReport, victim_, 0,
            HostFailed{victim_, {std::string(failure::kAgent), "reset", ""}});
      }
      put(now_, Kind::kLinkEndArrives, victim_);
      host.cut = true;
      break;
    case Fault::kAgentFails:
      if (host.gone) break;
      report(victim_, HostFailed{victim_, {std::string(failure::kCwd), "no such directory", ""}});
      if (host.greeted) end_ranks(victim_, options_.grace);
      break;
    case Fault::kUserSignal:
      first_signal_ = one_in(2) ? 2 : 15;
      return feed(UserSignal{first_signal_});
    case Fault::kOutputClosed:
      return feed(OutputClosed{});
    case Fault::kLaunchFails:
      return feed(LaunchFailed{{std::string(failure::kNetwork), "no common network", ""}, 125});
    case Fault::kLauncherStopped:
      // Every agent has found the launcher silent, and it learns that when it goes on.
      for (int h = 0; h < options_.hosts; ++h) {
        if (hosts_[h].started && !hosts_[h].gone) end_ranks(h, options_.grace);
      }
      break;
    default:
      break;
  }
  // What the other ranks make of it: their peers are gone.
  const bool hurts = fault_ == Fault::kHostCrashes || fault_ == Fault::kLinkCut;
  for (int h = 0; hurts && h < options_.hosts; ++h) {
    if (h == victim_ || !hosts_[h].started) continue;
    for (int i = 0; i < static_cast<int>(hosts_[h].ranks.size()); ++i) {
      Rank& rank = hosts_[h].ranks[i];
      if (!rank.running || one_in(2)) continue;
      rank.code = 1;
      rank.end = now_ + ms(1, 20'000);
      put(rank.end, Kind::kRankEnds, h, i);
    }
  }
}

}  // namespace hora::launcher::simulation
