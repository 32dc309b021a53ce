// SPDX-License-Identifier: Apache-2.0
// Detects missing ranks that others wait for: those that have not asked for an operation (on rank
// 0), and those that give no sign of life. Belongs to the thread that drives the runtime.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "collectives/negotiation/coordinator.h"
#include "collectives/negotiation/stall_inspector.h"
#include "collectives/runtime/mailbox.h"
#include "collectives/runtime/operation.h"
#include "collectives/runtime/process_set.h"
#include "collectives/runtime/shutdown.h"
#include "collectives/runtime/watchdog.h"
#include "collectives/runtime/world.h"

namespace hora::collectives {

class StallMonitor {
 public:
  // `heartbeat`: the one whose card the other ranks have; without it only connections are watched.
  StallMonitor(const World& world, Mailbox& mailbox, Shutdown& shutdown,
               std::optional<Heartbeat> heartbeat);

  // Collective, where ranks show signs of life: starts the watchdog. `sets` stay until stop().
  Status start(const SetTable& sets);
  // The watchdog is not to interrupt anything from now on. Idempotent.
  void stop();

  // Whether the watchdog needs to know where this rank waits for others.
  bool watches() const { return watchdog_->watches(); }
  // This rank waits in the process set for what others have not submitted; Wait::kNowhere: nowhere.
  void waits_in(std::int32_t set) { watchdog_->waits_in(set); }
  // This rank is in the middle of the step with that number. `title` is called once per step, and
  // only if the watchdog misses a rank: the hot path does not pay for the text.
  template <typename Title>
  void in_step(std::uint64_t number, std::int32_t set, Title&& title) {
    if (watches() && !watchdog_->is_in_step(number)) watchdog_->in_step(number, set, title());
  }
  // Something that this rank waited for has ended.
  void goes_on() { watchdog_->goes_on(); }

  // When look() is to be called although nothing has come. `coordinator`: null but on rank 0.
  Deadline next_check(const Coordinator* coordinator) const;
  // Ends the world when the limit is reached. `own`: what this rank has in the fast path; null:
  // nothing.
  void look(const Coordinator* coordinator, const Operation* own = nullptr);

 private:
  void look_for_stalls(const Coordinator* coordinator, const Operation* own);
  void report_silence(const std::vector<Watchdog::Silence>& silent) const;

  const World& world_;
  Mailbox& mailbox_;
  Shutdown& shutdown_;
  StallInspector inspector_;            // rank 0
  std::optional<Heartbeat> heartbeat_;  // until the watchdog has it
  // By rank, where signs of life and control messages go by the leaders of the hosts; else empty.
  std::vector<int> askers_;
  std::unique_ptr<Watchdog> watchdog_;
};

}  // namespace hora::collectives
