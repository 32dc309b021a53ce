// SPDX-License-Identifier: Apache-2.0
// Asks every host for the state of its ranks, and reports it when all have answered or the time is
// up. Also watches for a job that has gone silent. On the supervisor's loop.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/plan/job_spec.h"
#include "launcher/report/hang_report_text.h"
#include "rendezvous/base/result.h"
#include "rendezvous/os/event_loop.h"

namespace hora::launcher {

class HangReport {
 public:
  struct Handlers {
    // Sends kDump to the host; false when it cannot be asked.
    std::function<bool(int host, std::chrono::milliseconds patience)> ask;
    std::function<const std::vector<HostPlan>&()> hosts;
    std::function<void(const std::string& text)> tell;
  };

  HangReport(os::EventLoop& loop, Handlers handlers)
      : loop_(loop), handlers_(std::move(handlers)) {}
  ~HangReport();
  HangReport(const HangReport&) = delete;
  HangReport& operator=(const HangReport&) = delete;

  // `then` is called once in any case. A second call while one is under way only waits for its end.
  void begin(const std::string& why, std::function<void()> then);
  void on_stacks(int host, StackReport report);
  const std::string& last_text() const { return text_; }

  // From now on: silence of `after` is a stall, reported once until a rank is active again.
  void watch_for_stall(std::chrono::milliseconds after, std::function<void()> on_stall);
  void heard() { last_heard_ = Clock::now(); }

 private:
  void finish();
  void look();

  os::EventLoop& loop_;
  Handlers handlers_;
  std::string why_;
  std::set<int> waiting_;
  std::vector<RankStanding> standings_;
  std::vector<std::function<void()>> then_;
  os::EventLoop::TimerId timer_ = 0;
  std::string text_;

  std::chrono::milliseconds stall_after_{0};
  std::function<void()> on_stall_;
  Clock::time_point last_heard_;
  bool told_ = false;
  os::EventLoop::TimerId stall_timer_ = 0;
};

}  // namespace hora::launcher
