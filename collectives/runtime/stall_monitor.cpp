#include "collectives/runtime/stall_monitor.h"

#include <algorithm>
#include <string>
#include <utility>

#include "rendezvous/os/log.h"

namespace hora::collectives {

StallMonitor::StallMonitor(const World& world, Mailbox& mailbox, Shutdown& shutdown)
    : world_(world),
      mailbox_(mailbox),
      shutdown_(shutdown),
      inspector_({world.settings.stall_check, world.settings.stall_warning,
                  world.settings.stall_shutdown}) {
  if (!world_.coordinates()) return;
  if (const std::string text = inspector_.complaint(); !text.empty()) os::log_warn("stall", text);
}

Status StallMonitor::start(const SetTable& sets) {
  const auto on_break = [this](const std::vector<int>& silent) { shutdown_.interrupt(silent); };
  ControlChannel& channel = mailbox_.channel();
  if (world_.stall_limit().count() == 0 || world_.settings.size == 1) {
    watchdog_.emplace(channel.liveness_fds(), on_break);
    return Ok{};
  }
  auto signs = Heartbeat::open(world_.address, world_.settings.rank);
  if (!signs) os::log_warn("stall", signs.error().message);
  const Deadline deadline = Clock::now() + world_.settings.start_timeout;
  auto cards = mailbox_.oob().exchange(0, world_.ranks(), {signs ? signs->card() : ""}, deadline);
  if (!cards) return std::move(cards).error();
  std::optional<Watchdog::Watch> watch;
  if (signs) {
    HORA_TRY(signs->bootstrap(*cards));
    watch = {std::move(*signs), world_.stall_limit(), world_.settings.rank, &sets};
  }
  watchdog_.emplace(channel.liveness_fds(), on_break, std::move(watch));
  return Ok{};
}

void StallMonitor::stop() {
  if (watchdog_) watchdog_->stop();
}

Deadline StallMonitor::next_check(const Coordinator* coordinator) const {
  return coordinator != nullptr && coordinator->anything_waiting() ? inspector_.next_check()
                                                                   : Deadline::max();
}

void StallMonitor::look(const Coordinator* coordinator) {
  look_for_stalls(coordinator);
  if (world_.stall_limit().count() == 0 || shutdown_.ended()) return;
  if (const auto who = shutdown_.silent_ranks(); !who.empty()) {
    shutdown_.end_for_silence("waiting", who);
  }
}

void StallMonitor::look_for_stalls(const Coordinator* coordinator) {
  const Deadline due = next_check(coordinator);
  if (shutdown_.ended() || due == Deadline::max() || due > Clock::now()) return;
  const StallInspector::Report report = inspector_.check(*coordinator, Clock::now());
  if (!report.warning.empty()) os::log_warn("stall", report.warning);
  if (report.fatal.empty()) return;
  // Of those that are missing some may only be held up by another one.
  std::vector<int> stopped = watchdog_->silent();
  std::erase_if(stopped, [&](int rank) {
    return std::count(report.missing.begin(), report.missing.end(), rank) == 0;
  });
  if (!stopped.empty()) return shutdown_.end_for_silence("waiting", stopped);
  os::log_error("stall", report.fatal);
  shutdown_.end_world(report.fatal);
}

}  // namespace hora::collectives
