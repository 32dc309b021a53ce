// SPDX-License-Identifier: Apache-2.0
// Asks every host for the state of its ranks, and reports it when all have answered or the time is
// up. Also watches for a job that has gone silent. On the supervisor's loop.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
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
    std::function<bool(int host, std::chrono::milliseconds time_limit)> ask;
    std::function<const std::vector<HostPlan>&()> hosts;
    std::function<void(const std::string& text)> report;
    bool with_own_frames = false;
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

  struct StallHandlers {
    std::function<void()> on_stall;
    // Silent as well, but some ranks compute: which, and how many percent of a processor the least
    // of them takes.
    std::function<void(const std::vector<int>& ranks, int percent)> on_computing;
  };
  // From now on: silence of `after`, in which no rank computes, is a stall; each is reported once
  // until something comes again. A rank computes that uses the processor and is in no collective:
  // there, it may wait by spinning.
  void watch_for_stall(std::chrono::milliseconds after, StallHandlers handlers);
  void note_sign() { last_sign_ = Clock::now(); }

 private:
  using Done = std::function<void(std::vector<RankStanding> standings)>;
  struct Round {
    std::chrono::milliseconds time_limit;
    Done done;
  };
  struct Usage {
    std::map<std::pair<int, std::int64_t>, std::int64_t> cpu_ms;  // by host and process
    Clock::time_point when;
  };

  void ask(Round round);
  void next_round();
  void finish_round();
  void finish(std::vector<RankStanding> standings);
  void look();
  void judge(const std::vector<RankStanding>& standings, Clock::time_point asked);

  os::EventLoop& loop_;
  Handlers handlers_;
  std::string why_;
  std::deque<Round> rounds_;  // the first is under way while timer_ runs
  std::set<int> waiting_;
  std::vector<RankStanding> standings_;
  std::vector<std::function<void()>> then_;  // of the report that is being made
  os::EventLoop::TimerId timer_ = 0;
  std::string text_;

  std::chrono::milliseconds stall_after_{0};
  StallHandlers stall_;
  Clock::time_point last_sign_;
  std::optional<Usage> usage_;  // since half of the silence
  Clock::time_point reported_computing_;
  bool reported_ = false;
  os::EventLoop::TimerId stall_timer_ = 0;
};

}  // namespace hora::launcher
