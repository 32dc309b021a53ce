// SPDX-License-Identifier: Apache-2.0
#include "launcher/supervisor/job_control.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <utility>

#include "launcher/control/control_folder.h"
#include "launcher/control/kept_output.h"
#include "launcher/report/job_recorder.h"
#include "launcher/report/secrets.h"
#include "rendezvous/os/log.h"

namespace hora::launcher {

namespace {

constexpr Milliseconds kOpensAfter{100};
constexpr Milliseconds kTrimEvery{500};
constexpr Milliseconds kClientsInterval{2'000};
// Whatever the size of the job, the launcher reads at most a hundred answers a second for a person
// that waits for them, and else as many as cost it a thousandth of a CPU.
constexpr Milliseconds kClientsPause{10};
constexpr Milliseconds kPause{50};
constexpr Milliseconds kProgressInterval{10'000};
constexpr Milliseconds kProgressPause{9'500};  // answers do not come equally fast each time

// The first figures come soon; two rounds make them.
constexpr Milliseconds kFirstPause{1'000};
constexpr Milliseconds kFirstPausePerHost{10};

}  // namespace

JobControl::JobControl(os::EventLoop& loop, const JobSpec& spec, const EnvironmentList& environment,
                       Clock::time_point start, Handlers handlers)
    : loop_(loop),
      spec_(spec),
      start_(start),
      started_at_(rfc3339_now()),
      handlers_(std::move(handlers)),
      ranks_(loop, {handlers_.ask, handlers_.plan,
                    [this](const JobFigures& figures) { on_figures(figures); }}),
      keeps_output_(is_kept_output(STDOUT_FILENO)) {
  if (keeps_output_) trim_output();
  timer_ = loop_.call_after(kOpensAfter, [this, &environment] {
    timer_ = 0;
    open(environment);
  });
}

JobControl::~JobControl() {
  loop_.cancel(timer_);
  loop_.cancel(trim_timer_);
}

void JobControl::open(const EnvironmentList& environment) {
  // A runtime directory goes when its user logs out, and a job of --detach stays.
  const std::string directory =
      keeps_output_ ? "" : value_in(environment, "XDG_RUNTIME_DIR").value_or("");
  auto server = ControlServer::open(loop_, control_folders(directory),
                                    {[this] { return summary(); }, [this] { handlers_.cancel(); },
                                     [this](bool wanted) {
                                       is_watched_ = wanted;
                                       watch_ranks();
                                     }});
  if (!server) {
    os::log_debug("control", "horarun jobs will not show this job: " + server.error().message);
    return;
  }
  server_ = std::move(*server);
  os::log_debug("control", "this is job " + std::to_string(::getpid()) + " of horarun jobs");
}

// The shortest interval that anything wants is that of all: more figures than it needs do not
// disturb the others.
void JobControl::watch_ranks() {
  const auto hosts = static_cast<Milliseconds::rep>(handlers_.plan().hosts.size());
  Milliseconds interval{0};
  const auto wish = [&](bool is_wanted, Milliseconds wanted, Milliseconds pause) {
    wanted = std::max(wanted, hosts * pause);
    if (is_wanted && (interval == Milliseconds(0) || wanted < interval)) interval = wanted;
  };
  wish(is_watched_, kClientsInterval, kClientsPause);
  wish(is_running_ && spec_.progress, kProgressInterval, kPause);
  wish(is_running_ && !spec_.report_files.empty(), usage_.interval(), kPause);
  ranks_.watch(interval);
}

void JobControl::on_figures(const JobFigures& figures) {
  if (server_) server_->publish(figures);
  // While the job ends, ranks are missing from the figures one after the other.
  if (handlers_.state() != "running") return;
  const auto now = Clock::now();
  if (!spec_.report_files.empty()) {
    usage_.add(std::chrono::duration<double>(now - running_since_).count(), figures);
    watch_ranks();
  }
  if (!spec_.progress || now < progress_due_) return;
  progress_due_ = now + kProgressPause;
  handlers_.show_progress(figures);
}

void JobControl::on_running() {
  is_running_ = true;
  running_since_ = Clock::now();
  watch_ranks();
  if (server_) server_->announce(std::string(kRunningLine));
}

void JobControl::on_end(int exit_code) {
  if (server_) server_->announce(exit_code_line(exit_code));
}

// By time and not by size: the writer has a thread of its own, and should not wait for this.
void JobControl::trim_output() {
  trim_kept_output(STDOUT_FILENO);
  trim_timer_ = loop_.call_after(kTrimEvery, [this] { trim_output(); });
}

JobSummary JobControl::summary() const {
  JobSummary job;
  job.job = ::getpid();
  job.state = handlers_.state();
  job.command = without_secrets(spec_.command);
  for (const HostPlan& host : handlers_.plan().hosts) {
    job.hosts.push_back(host.host.name);
    job.ranks += static_cast<int>(host.slots.size());
  }
  job.started_at = started_at_;
  job.age_s = std::chrono::duration<double>(Clock::now() - start_).count();
  return job;
}

// A round asks every host once. Its figures are published when all have answered, or when the next
// round begins: a host that is silent then is not in them.
void RankWatch::watch(Milliseconds interval) {
  const Milliseconds before = std::exchange(interval_, interval);
  const bool is_sooner =
      interval > Milliseconds(0) && (before == Milliseconds(0) || interval < before);
  // Later: from the next round on.
  if (interval > Milliseconds(0) && !is_sooner) return;
  loop_.cancel(std::exchange(timer_, 0));
  waiting_.clear();
  before_.clear();
  now_.clear();
  if (is_sooner) ask_all();
}

Milliseconds RankWatch::pause() const {
  const auto hosts = static_cast<Milliseconds::rep>(handlers_.plan().hosts.size());
  return before_.empty() ? std::max(kFirstPause, hosts * kFirstPausePerHost) : interval_;
}

// The samples of the round before are the beginning of this one's figures.
void RankWatch::ask_all() {
  timer_ = 0;
  if (!waiting_.empty()) publish();
  // What publish() calls may have called watch().
  if (interval_ == Milliseconds(0) || timer_ != 0) return;
  before_ = std::exchange(now_, {});
  waiting_.clear();
  const int hosts = static_cast<int>(handlers_.plan().hosts.size());
  for (int host = 0; host < hosts; ++host) {
    if (handlers_.ask(host)) waiting_.insert(host);
  }
  timer_ = loop_.call_after(pause(), [this] { ask_all(); });
}

void RankWatch::on_samples(int host, const RankSamples& samples) {
  if (waiting_.erase(host) == 0) return;
  const auto at = Clock::now();
  for (const RankSample& sample : samples.ranks) now_[sample.rank] = {sample, at};
  if (waiting_.empty()) publish();
}

void RankWatch::publish() {
  if (before_.empty()) return;
  JobFigures figures = figures_between(before_, now_);
  std::map<int, const std::string*> hosts;
  for (const HostPlan& host : handlers_.plan().hosts) {
    for (const Slot& slot : host.slots) hosts[slot.rank] = &host.host.name;
  }
  for (RankFigures& rank : figures.worst) {
    if (const auto host = hosts.find(rank.rank); host != hosts.end()) rank.host = *host->second;
  }
  handlers_.publish(figures);
}

}  // namespace hora::launcher
