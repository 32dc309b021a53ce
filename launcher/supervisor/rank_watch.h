// SPDX-License-Identifier: Apache-2.0
// Asks the hosts what their ranks do, as long as a client or an option needs it. On the event loop's
// thread.
#pragma once

#include <functional>
#include <set>
#include <utility>

#include "launcher/control/job_figures.h"
#include "launcher/plan/plan.h"
#include "launcher/protocol/messages.h"
#include "rendezvous/base/time.h"
#include "rendezvous/os/event_loop.h"

namespace hora::launcher {

class RankWatch {
 public:
  struct Handlers {
    std::function<bool(int host)> ask;  // sends kSample; false: its link is gone
    std::function<const Plan&()> plan;
    std::function<void(const JobFigures& figures)> publish;
  };

  RankWatch(os::EventLoop& loop, Handlers handlers) : loop_(loop), handlers_(std::move(handlers)) {}
  ~RankWatch() { loop_.cancel(timer_); }
  RankWatch(const RankWatch&) = delete;
  RankWatch& operator=(const RankWatch&) = delete;

  // Figures come in this interval; 0: none.
  void watch(Milliseconds interval);
  void on_samples(int host, const RankSamples& samples);

 private:
  void ask_all();
  void publish();
  Milliseconds pause() const;

  os::EventLoop& loop_;
  Handlers handlers_;
  Milliseconds interval_{0};
  os::EventLoop::TimerId timer_ = 0;
  std::set<int> waiting_;  // hosts that have not answered
  SamplesOfRanks before_;
  SamplesOfRanks now_;
};

}  // namespace hora::launcher
