// SPDX-License-Identifier: Apache-2.0
// Two detectors, one limit. The stall inspector (rank 0) sees operations that some ranks have not
// submitted. The watchdog sees ranks that do not answer while others wait for them. Where both
// apply, the silent rank is named, because ranks may be missing only since it holds them up.
#include "collectives/runtime/stall_monitor.h"

#include <algorithm>
#include <string>
#include <utility>

#include "collectives/runtime/shutdown.h"
#include "rendezvous/os/log.h"

namespace hora::collectives {

namespace {

// The others answer in the fast path sooner, unless one of them is stopped.
constexpr std::chrono::seconds kHeldUp{1};

}  // namespace

StallMonitor::StallMonitor(const World& world, Mailbox& mailbox, Shutdown& shutdown,
                           std::optional<Heartbeat> heartbeat)
    : world_(world),
      mailbox_(mailbox),
      shutdown_(shutdown),
      inspector_({world.settings.stall_check, world.settings.stall_warning,
                  world.settings.stall_shutdown}),
      heartbeat_(std::move(heartbeat)) {
  // The settings of rank 0 apply to all; the others would repeat its complaint.
  if (!world_.coordinates()) return;
  if (const std::string text = inspector_.complaint(); !text.empty()) os::log_warn("stall", text);
}

Status StallMonitor::start(const SetTable& sets) {
  const auto on_break = [this](const std::vector<int>& silent) { shutdown_.interrupt(silent); };
  const auto warning = std::chrono::seconds(world_.agreed().stall_warning_s);
  std::optional<Watchdog::Watch> watch;
  if (heartbeat_ && (warning.count() > 0 || world_.stall_limit().count() > 0)) {
    std::vector<std::string> cards;
    for (const RankInfo& each : world_.rank_infos) cards.push_back(each.heartbeat_card);
    if (world_.settings.size > world_.settings.star_ranks) askers_ = find_askers(world_.hosts);
    // With a limit, every rank answers once before the first operation: a rank that has never
    // answered is not judged.
    HORA_TRY(heartbeat_->bootstrap(cards, world_.stall_limit().count() > 0, askers_));
    watch = {std::move(*heartbeat_),
             world_.stall_limit(),
             world_.settings.rank,
             &sets,
             warning,
             [this](const std::vector<Watchdog::Silence>& silent) { report_silence(silent); }};
  }
  heartbeat_.reset();
  auto watchdog = Watchdog::post(mailbox_.channel().liveness_fds(), on_break, std::move(watch));
  if (!watchdog) return std::move(watchdog).error();
  watchdog_ = std::move(*watchdog);
  return Ok{};
}

void StallMonitor::stop() {
  if (watchdog_) watchdog_->stop();
}

// On the watchdog's thread.
void StallMonitor::report_silence(const std::vector<Watchdog::Silence>& silent) const {
  const auto whole_seconds = [](const Wait& wait) {
    return std::to_string(std::chrono::floor<std::chrono::seconds>(wait.since).count()) + " s";
  };
  std::string text = "some ranks have waited for " + whole_seconds(silent.front().wait) +
                     " for others that do not answer:";
  for (const auto& [rank, wait] : silent) {
    text += "\n  " + world_.name_rank(rank) + " is missing";
    if (wait.in_step) text += " in the middle of " + wait.what;
    if (wait.set != 0) text += " of process set " + std::to_string(wait.set);
    text += " for " + whole_seconds(wait) + "; its process or its host is stopped";
  }
  os::log_warn("stall", text);
}

Deadline StallMonitor::next_check(const Coordinator* coordinator) const {
  return coordinator != nullptr && coordinator->anything_waiting() ? inspector_.next_check()
                                                                   : Deadline::max();
}

void StallMonitor::look(const Coordinator* coordinator, const Operation* own) {
  look_for_stalls(coordinator, own);
  if (world_.stall_limit().count() == 0 || shutdown_.ended()) return;
  if (const auto who = shutdown_.silent_ranks(); !who.empty()) {
    shutdown_.end_for_silence("waiting", who);
  }
}

void StallMonitor::look_for_stalls(const Coordinator* coordinator, const Operation* own) {
  const Deadline due = next_check(coordinator);
  if (shutdown_.ended() || due == Deadline::max() || due > Clock::now()) return;
  const auto now = Clock::now();
  const StallInspector::Report report = inspector_.check(*coordinator, now);
  // Rank 0 has asked in the fast path, where a rank that is called upon answers: one does not. The
  // watchdog names that one, or the fast path.
  const bool held_up = own != nullptr && now - own->submitted >= kHeldUp;
  if (held_up && std::all_of(report.missing.begin(), report.missing.end(),
                             [](int rank) { return rank == 0; })) {
    return;
  }
  if (report.missing.empty()) return;
  // Some of the missing ranks may only be held up by another one, as by a leader, which passes on
  // what they say.
  std::vector<int> stopped = watchdog_->silent();
  std::vector<int> keep_back;
  if (!askers_.empty()) keep_back = who_keeps_back(stopped, report.missing, world_.hosts);
  if (!report.warning.empty()) {
    std::string text = report.warning;
    for (const int rank : keep_back) {
      text += "\n  " + world_.name_rank(rank) +
              " does not answer; its process or its host is stopped, and what ranks behind it say "
              "does not come through";
    }
    os::log_warn("stall", text);
  }
  if (report.fatal.empty()) return;
  std::erase_if(stopped, [&](int rank) {
    const auto is_among = [rank](const auto& ranks) {
      return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
    };
    return !is_among(report.missing) && !is_among(keep_back);
  });
  if (!stopped.empty()) return shutdown_.end_for_silence("waiting", stopped);
  os::log_error("stall", report.fatal);
  shutdown_.end_world(report.fatal);
}

}  // namespace hora::collectives
