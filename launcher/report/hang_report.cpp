// SPDX-License-Identifier: Apache-2.0
#include "launcher/report/hang_report.h"

#include <algorithm>
#include <utility>

#include "launcher/output/console.h"
#include "rendezvous/base/time.h"

namespace hora::launcher {

namespace {

// The agent answers with the stacks that it has after kHostTimeout, so that one rank which does
// not react costs its own stacks and not those of its whole host.
constexpr std::chrono::milliseconds kHostTimeout{1'500};
constexpr std::chrono::milliseconds kTimeout{3'000};  // the way there and back included

}  // namespace

HangReport::~HangReport() {
  loop_.cancel(timer_);
  loop_.cancel(stall_timer_);
}

void HangReport::begin(const std::string& why, std::function<void()> then) {
  then_.push_back(std::move(then));
  // One report is under way: a second reason gets the same.
  if (then_.size() > 1) return;
  why_ = why;
  ask({kHostTimeout,
       [this](std::vector<RankStanding> standings) { finish(std::move(standings)); }});
}

// --- rounds: an agent answers one question at a time ---------------------------------------------

void HangReport::ask(Round round) {
  rounds_.push_back(std::move(round));
  if (rounds_.size() == 1) next_round();
}

void HangReport::next_round() {
  standings_.clear();
  waiting_.clear();
  for (int host = 0; host < static_cast<int>(handlers_.hosts().size()); ++host) {
    if (handlers_.ask(host, rounds_.front().time_limit)) waiting_.insert(host);
  }
  // With no host to ask still by the timer: `done` is never called before ask() returns.
  timer_ = loop_.call_after(waiting_.empty() ? std::chrono::milliseconds(0) : kTimeout,
                            [this] { finish_round(); });
}

void HangReport::on_stacks(int host, StackReport report) {
  if (timer_ == 0 || waiting_.erase(host) == 0) return;
  for (ProcessStacks& process : report.processes) standings_.push_back({host, std::move(process)});
  if (!waiting_.empty()) return;
  loop_.cancel(timer_);
  finish_round();
}

void HangReport::finish_round() {
  timer_ = 0;
  const Done done = std::move(rounds_.front().done);
  done(std::exchange(standings_, {}));
  rounds_.pop_front();
  if (!rounds_.empty()) next_round();
}

void HangReport::finish(std::vector<RankStanding> standings) {
  text_ = hang_report_text(why_, std::move(standings), {waiting_.begin(), waiting_.end()},
                           handlers_.hosts(), console_width(), handlers_.with_own_frames);
  handlers_.report(text_);
  // One of the calls may begin the next report.
  const auto then = std::exchange(then_, {});
  for (const auto& call : then) call();
}

// --- stalls --------------------------------------------------------------------------------------

void HangReport::watch_for_stall(std::chrono::milliseconds after, StallHandlers handlers) {
  stall_after_ = after;
  stall_ = std::move(handlers);
  note_sign();
  look();
}

// At half of the silence each rank's CPU time is read, and at its end again.
void HangReport::look() {
  const Clock::duration half = stall_after_ / 2;
  const auto now = Clock::now();
  const auto silence = now - last_sign_;
  auto next = half;
  if (silence < half) {
    usage_.reset();
    next = half - silence;
  } else if (silence < stall_after_) {
    ask({Milliseconds(0), [this](const std::vector<RankStanding>& standings) {
           usage_ = Usage{{}, Clock::now()};
           for (const auto& [host, process] : standings) {
             usage_->cpu_ms[{host, process.pid}] = process.cpu_ms;
           }
         }});
    next = stall_after_ - silence;
  } else if (!reported_) {
    ask({Milliseconds(0),
         [this, now](const std::vector<RankStanding>& standings) { judge(standings, now); }});
  }
  // A job that goes on may stall again, and that is reported again.
  if (silence < stall_after_) reported_ = false;
  // At the very moment when it would be a stall, and again and again after that.
  stall_timer_ = loop_.call_after(next + std::chrono::milliseconds(1), [this] { look(); });
}

void HangReport::judge(const std::vector<RankStanding>& standings, Clock::time_point asked) {
  // Less is the beat of a program that waits.
  constexpr int kLeastPercent = 3;
  if (last_sign_ > asked || reported_) return;
  std::vector<int> ranks;
  int least = 100;
  for (const auto& [host, process] : standings) {
    if (!process.leader || !usage_ || !process.standing.operations.empty() ||
        process.standing.state == "joining") {
      continue;
    }
    const auto before = usage_->cpu_ms.find({host, process.pid});
    if (before == usage_->cpu_ms.end()) continue;
    const auto passed = std::chrono::duration_cast<Milliseconds>(Clock::now() - usage_->when);
    const std::int64_t used = process.cpu_ms - before->second;
    const auto percent = used * 100 / std::max<std::int64_t>(passed.count(), 1);
    // On a busy machine it may get less. Reading files counts, too.
    const bool is_busy =
        used > 0 && (process.state.starts_with('R') || process.state.starts_with('D'));
    if (percent < kLeastPercent && !is_busy) continue;
    ranks.push_back(process.rank);
    least = std::min(least, static_cast<int>(percent));
  }
  if (ranks.empty()) {
    reported_ = true;
    return stall_.on_stall();
  }
  std::sort(ranks.begin(), ranks.end());
  // The silence goes on: it is reported once.
  if (reported_computing_ < last_sign_) stall_.on_computing(ranks, least);
  last_sign_ = Clock::now();
  reported_computing_ = last_sign_;
}

}  // namespace hora::launcher
