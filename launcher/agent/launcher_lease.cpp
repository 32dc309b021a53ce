// SPDX-License-Identifier: Apache-2.0
#include "launcher/agent/launcher_lease.h"

#include "launcher/process/process_table.h"

namespace hora::launcher {

namespace {

// Nothing runs before the order, and other hosts may need long to connect and to receive files; but
// a launcher that lives says so every 2.5 s at least.
constexpr Milliseconds kLeaseBeforeOrder{30'000};
constexpr Milliseconds kHeartbeatBeforeOrder{2'500};

}  // namespace

LauncherLease::LauncherLease(os::EventLoop& loop, LauncherLink& link, Options options,
                             std::function<void()> on_lost)
    : loop_(loop),
      link_(link),
      options_(options),
      on_lost_(std::move(on_lost)),
      lease_(kLeaseBeforeOrder),
      pause_(kHeartbeatBeforeOrder) {}

void LauncherLease::begin() { await_next(); }

void LauncherLease::take_order(Milliseconds lease) {
  lease_ = lease;
  // Three heartbeats may be lost or late before the other side gives up.
  pause_ = lease / 4;
  beat();
}

void LauncherLease::stop() {
  stopped_ = true;
  loop_.cancel(timer_);
  timer_ = 0;
}

void LauncherLease::beat() {
  if (stopped_ || link_.ended()) return;
  // Not now(): we may have been stopped ourselves, with heartbeats waiting.
  const auto now = loop_.polled_at();
  Silence& silence = link_.silence();
  const bool can_look = !suspended_ && options_.launcher != 0;
  silence.look(next_, now, pause_,
               can_look ? std::optional(pulse_of(options_.launcher)) : std::nullopt);
  await_next();
  link_.send(FrameType::kHeartbeat);
  if (judge(silence.evidence(now), limit()) != Verdict::kLost) return;
  link_.read_now();  // what has come since the loop looked
  if (!stopped_ && !link_.ended() && silence.length(now) > limit()) on_lost_();
}

void LauncherLease::await_next() {
  loop_.cancel(timer_);
  next_ = Clock::now() + pause_;
  timer_ = loop_.call_at(next_, [this] { beat(); });
}

}  // namespace hora::launcher
