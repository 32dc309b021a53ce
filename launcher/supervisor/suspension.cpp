// SPDX-License-Identifier: Apache-2.0
#include "launcher/supervisor/suspension.h"

namespace hora::launcher {

namespace {

// A host that does not answer in time does not keep the shell waiting: its agent stops its ranks
// when the frame arrives.
constexpr std::chrono::milliseconds kTimeout{1'000};

}  // namespace

void Suspension::begin() {
  if (timer_ != 0) return;
  waiting_ = 0;
  for (int host = 0; host < fleet_.size(); ++host) {
    if (!fleet_.hello(host) || !fleet_.is_open(host)) continue;
    fleet_.send(host, SuspendRanks{});
    ++waiting_;
  }
  timer_ = loop_.call_after(kTimeout, [this] { stop(); });
  if (waiting_ == 0) stop();
}

void Suspension::on_host_suspended() {
  if (timer_ != 0 && --waiting_ == 0) stop();
}

void Suspension::stop() {
  loop_.cancel(timer_);
  timer_ = 0;
  stop_this_process_();
  fleet_.forgive_silence();
  resume_ranks();
}

void Suspension::call_off() {
  if (timer_ == 0) return;
  loop_.cancel(timer_);
  timer_ = 0;
  resume_ranks();
}

void Suspension::resume_ranks() {
  for (int host = 0; host < fleet_.size(); ++host) {
    if (fleet_.hello(host)) fleet_.send(host, ResumeRanks{});
  }
}

}  // namespace hora::launcher
