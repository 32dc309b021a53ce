// SPDX-License-Identifier: Apache-2.0
// What a running job shows and takes from other terminals of its user: `horarun jobs`, `top`,
// `attach` and `cancel`; and --progress and --report, which have the figures of `top`. On the event
// loop's thread.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "launcher/control/control_server.h"
#include "launcher/control/job_figures.h"
#include "launcher/plan/job_spec.h"
#include "launcher/plan/plan.h"
#include "launcher/plan/worker_environment.h"
#include "launcher/protocol/messages.h"
#include "rendezvous/base/time.h"
#include "rendezvous/os/event_loop.h"

namespace hora::launcher {

// Asks the hosts what their ranks do, as long as a client or an option needs it.
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

class JobControl {
 public:
  struct Handlers {
    std::function<std::string()> state;  // as in JobSummary
    std::function<const Plan&()> plan;
    std::function<void()> cancel;
    std::function<bool(int host)> ask;                             // as in RankWatch
    std::function<void(const JobFigures& figures)> show_progress;  // of --progress
  };

  // A job that lasts gets its socket a moment later: one that ends at once need not pay for it.
  // Where none can be made, the job runs without. `spec` and `environment` must outlive this.
  JobControl(os::EventLoop& loop, const JobSpec& spec, const EnvironmentList& environment,
             Clock::time_point start, Handlers handlers);
  ~JobControl();
  JobControl(const JobControl&) = delete;
  JobControl& operator=(const JobControl&) = delete;

  void on_samples(int host, const RankSamples& samples) { ranks_.on_samples(host, samples); }
  void on_running();  // all ranks run
  void on_end(int exit_code);
  const UsageSeries& usage() const { return usage_; }

 private:
  void open(const EnvironmentList& environment);
  void trim_output();
  void watch_ranks();
  void on_figures(const JobFigures& figures);
  JobSummary summary() const;

  os::EventLoop& loop_;
  const JobSpec& spec_;
  Clock::time_point start_;
  std::string started_at_;
  Handlers handlers_;
  RankWatch ranks_;
  bool is_watched_ = false;  // by a client
  bool is_running_ = false;  // all ranks have been started
  Clock::time_point running_since_{};
  Clock::time_point progress_due_{};
  UsageSeries usage_;  // of --report
  bool keeps_output_;  // of --detach
  os::EventLoop::TimerId timer_ = 0;
  os::EventLoop::TimerId trim_timer_ = 0;
  std::unique_ptr<ControlServer> server_;  // may call the members above until it ends
};

}  // namespace hora::launcher
