// SPDX-License-Identifier: Apache-2.0
// Whether the launcher still lives, as an agent can tell: each side sends heartbeats, and an agent
// that hears nothing for the time of the lease takes its launcher for lost and ends the job.
//
// Before the order the lease is a fixed one, since the job's own comes with the order. While the
// launcher is suspended (Ctrl-Z) the lease is long. A launcher on this machine whose process is at
// work may be silent: it gets no time, or waits for a disk. Single-threaded, on the agent's loop.
#pragma once

#include <functional>

#include "launcher/agent/launcher_link.h"
#include "rendezvous/base/duration.h"
#include "rendezvous/os/event_loop.h"

namespace hora::launcher {

class LauncherLease {
 public:
  struct Options {
    int launcher = 0;                 // its process, where it is on this machine; 0: elsewhere
    Milliseconds suspended_lease{0};  // while the launcher is suspended
  };
  // `on_lost` is called once the lease has passed, again with each further heartbeat until stop().
  LauncherLease(os::EventLoop& loop, LauncherLink& link, Options options,
                std::function<void()> on_lost);
  ~LauncherLease() { stop(); }
  LauncherLease(const LauncherLease&) = delete;
  LauncherLease& operator=(const LauncherLease&) = delete;

  // The first heartbeat is due one pause from now.
  void begin();
  // The order has come: its lease counts from now on, and a heartbeat goes out at once.
  void take_order(Milliseconds lease);
  void suspend(bool suspended) { suspended_ = suspended; }
  bool suspended() const { return suspended_; }
  // How long the launcher may be silent now.
  Milliseconds limit() const { return suspended_ ? options_.suspended_lease : lease_; }
  void stop();

 private:
  void beat();
  void await_next();

  os::EventLoop& loop_;
  LauncherLink& link_;
  Options options_;
  std::function<void()> on_lost_;
  Milliseconds lease_;
  Milliseconds pause_;  // between two heartbeats
  bool suspended_ = false;
  bool stopped_ = false;
  Clock::time_point next_;
  os::EventLoop::TimerId timer_ = 0;
};

}  // namespace hora::launcher
