// SPDX-License-Identifier: Apache-2.0
#include "launcher/supervisor/job_control.h"

#include <unistd.h>

#include <chrono>
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

}  // namespace

JobControl::JobControl(os::EventLoop& loop, const JobSpec& spec, const EnvironmentList& environment,
                       Clock::time_point start, Handlers handlers)
    : loop_(loop),
      spec_(spec),
      start_(start),
      started_at_(rfc3339_now()),
      handlers_(std::move(handlers)),
      ranks_(loop, {handlers_.ask, handlers_.plan,
                    [this](const JobFigures& figures) {
                      if (server_) server_->publish(figures);
                    }}),
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
                                     [this](bool wanted) { ranks_.watch(wanted); }});
  if (!server) {
    os::log_debug("control", "horarun jobs will not show this job: " + server.error().message);
    return;
  }
  server_ = std::move(*server);
  os::log_debug("control", "this is job " + std::to_string(::getpid()) + " of horarun jobs");
}

void JobControl::on_running() {
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

}  // namespace hora::launcher
