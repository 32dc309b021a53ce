// SPDX-License-Identifier: Apache-2.0
#include "launcher/report/hang_report.h"

namespace hora::launcher {

namespace {

// The agent answers with the stacks that it has after kHostPatience, so that one rank which does
// not react costs its own stacks and not those of its whole host.
constexpr std::chrono::milliseconds kHostPatience{1'500};
constexpr std::chrono::milliseconds kPatience{3'000};  // the way there and back included

}  // namespace

HangReport::~HangReport() {
  loop_.cancel(timer_);
  loop_.cancel(stall_timer_);
}

void HangReport::begin(const std::string& why, std::function<void()> then) {
  then_.push_back(std::move(then));
  // One report is under way: a second reason gets the same.
  if (timer_ != 0) return;
  why_ = why;
  standings_.clear();
  waiting_.clear();
  for (int host = 0; host < static_cast<int>(handlers_.hosts().size()); ++host) {
    if (handlers_.ask(host, kHostPatience)) waiting_.insert(host);
  }
  // Also with no host to ask by the timer: `then` is never called before begin() returns.
  timer_ = loop_.call_after(waiting_.empty() ? std::chrono::milliseconds(0) : kPatience,
                            [this] { finish(); });
}

void HangReport::on_stacks(int host, StackReport report) {
  if (timer_ == 0 || waiting_.erase(host) == 0) return;
  for (ProcessStacks& process : report.processes) standings_.push_back({host, std::move(process)});
  if (waiting_.empty()) {
    loop_.cancel(timer_);
    finish();
  }
}

void HangReport::finish() {
  timer_ = 0;
  text_ = hang_report_text(why_, std::move(standings_), {waiting_.begin(), waiting_.end()},
                           handlers_.hosts());
  standings_.clear();
  handlers_.tell(text_);
  // One of the calls may begin the next report.
  const auto then = std::exchange(then_, {});
  for (const auto& call : then) call();
}

void HangReport::watch_for_stall(std::chrono::milliseconds after, std::function<void()> on_stall) {
  stall_after_ = after;
  on_stall_ = std::move(on_stall);
  heard();
  look();
}

void HangReport::look() {
  const auto silence = Clock::now() - last_heard_;
  if (silence < stall_after_) {
    // A job that goes on may stall again, and that is reported again.
    told_ = false;
  } else if (!told_) {
    told_ = true;
    on_stall_();
  }
  // At the very moment when it would be a stall, and again and again after that.
  const auto next =
      silence < stall_after_ ? stall_after_ - silence : Clock::duration(stall_after_ / 2);
  stall_timer_ = loop_.call_after(next + std::chrono::milliseconds(1), [this] { look(); });
}

}  // namespace hora::launcher
