// SPDX-License-Identifier: Apache-2.0
#include "apps/run/job_verbs.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "launcher/control/control_client.h"
#include "launcher/control/control_folder.h"
#include "launcher/control/job_figures.h"
#include "launcher/control/kept_output.h"
#include "launcher/control/top_text.h"
#include "launcher/protocol/exit_code.h"
#include "rendezvous/base/time.h"

namespace hora::launcher {

namespace {

constexpr Milliseconds kLookEvery{100};

// The file has the output, and the connection says how the job stands. Between two attempts of a
// job (--restarts) the file stays, and there is no connection.
class Follower {
 public:
  Follower(const std::vector<std::string>& folders, const Follow& follow, OutputReader reader)
      : folders_(folders), follow_(follow), reader_(std::move(reader)) {}

  Result<std::optional<int>> run() {
    for (;;) {
      // Before the output is read: what was written until then is not missed.
      const auto ended = follow_.ended();
      const bool is_over = ended || reader_.is_complete();
      HORA_TRY(copy_new());
      if (is_over) {
        // Without either, the launcher was killed as it ended.
        return std::optional(code_.value_or(ended.value_or(kExitLauncher)));
      }
      if (listen() && follow_.until_running) return std::optional<int>();
    }
  }

 private:
  Status copy_new() {
    for (;;) {
      const auto bytes = reader_.read_new();
      if (!bytes) return bytes.error();
      if (bytes->empty()) break;
      if (std::fwrite(bytes->data(), 1, bytes->size(), follow_.to) != bytes->size()) {
        return errno_error(errno, "writing the output");
      }
    }
    if (std::fflush(follow_.to) != 0) return errno_error(errno, "writing the output");
    return Ok{};
  }

  // Waits a moment, or until the launcher says something. True: all ranks run.
  bool listen() {
    if (!connection_) {
      auto opened = ControlConnection::open(folders_, follow_.job, {ControlRequest::Kind::kAttach});
      if (opened) connection_.emplace(std::move(*opened));
    }
    if (!connection_) {
      std::this_thread::sleep_for(kLookEvery);
      return false;
    }
    const auto line = connection_->read_line(kLookEvery);
    if (!line && line.error().code != ErrorCode::kTimedOut) connection_.reset();
    if (!line) return false;
    if (const auto code = parse_exit_code(*line)) code_ = code;
    return *line == kRunningLine;
  }

  const std::vector<std::string>& folders_;
  const Follow& follow_;
  OutputReader reader_;
  std::optional<ControlConnection> connection_;
  std::optional<int> code_;
};

constexpr Milliseconds kAnswerTimeout{5'000};
// A job has its grace, and its hosts as much again; see --grace.
constexpr Milliseconds kEndTimeout{120'000};
// A large job is looked at less often, and answers later.
constexpr Milliseconds kFiguresTimeout{600'000};
constexpr const char* kClearScreen = "\x1b[H\x1b[2J";

Status print(const std::string& text) {
  if (std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0)
    return errno_error(errno, "writing to stdout");
  return Ok{};
}

Result<int> list_jobs(bool json, const std::vector<std::string>& folders) {
  const auto jobs = running_jobs(folders);
  std::string text;
  for (const JobSummary& job : jobs) text += json ? job_summary_json(job) : "";
  HORA_TRY(print(json ? text : job_list_text(jobs)));
  return 0;
}

// The launcher's first line, whatever was asked for.
Result<JobSummary> read_summary(ControlConnection& connection, int job) {
  const auto line = connection.read_line(kAnswerTimeout);
  if (!line) return line.error().with_context("job " + std::to_string(job));
  return parse_job_summary(*line);
}

Result<int> cancel_job(int job, bool json, const std::vector<std::string>& folders) {
  auto connection = ControlConnection::open(folders, job, {ControlRequest::Kind::kCancel});
  if (!connection) return std::move(connection).error();
  const auto summary = read_summary(*connection, job);
  if (!summary) return summary.error();
  // It says no more, and ends.
  const auto end = connection->read_line(kEndTimeout);
  if (end || end.error().code != ErrorCode::kNotFound) {
    return make_error(ErrorCode::kTimedOut,
                      "job " + std::to_string(job) +
                          " was asked to end, and has not ended in 2 min; ask again to end its "
                          "ranks at once");
  }
  HORA_TRY(
      print(json ? job_summary_json(*summary) : "job " + std::to_string(job) + " has ended\n"));
  return 0;
}

Result<int> attach_to_job(int job, const std::vector<std::string>& folders) {
  Follow follow;
  follow.job = job;
  // Killed, it has not removed its output.
  follow.ended = [job]() -> std::optional<int> {
    return ::kill(job, 0) != 0 && errno == ESRCH ? std::optional<int>(kExitLauncher) : std::nullopt;
  };
  auto reader = OutputReader::open(folders, job);
  if (!reader) return std::move(reader).error();
  const auto code = follow_job(folders, std::move(*reader), follow);
  if (!code) return code.error();
  return code->value_or(kExitOk);
}

// The only one that runs, where none is named.
Result<int> find_job(int named, const std::vector<std::string>& folders) {
  if (named > 0) return named;
  const auto jobs = running_jobs(folders);
  if (jobs.size() == 1) return jobs.front().job;
  if (jobs.empty()) {
    return make_error(ErrorCode::kNotFound, "no job of yours is running on this machine");
  }
  return make_error(ErrorCode::kUsage,
                    "several jobs are running: horarun top JOB names one\n" + job_list_text(jobs));
}

// A terminal shows one table that is drawn again; a pipe gets one after the other.
std::string shown(const AskJobs& command, const JobSummary& job, const std::string& line,
                  const JobFigures& figures) {
  if (command.json) return line + "\n";
  if (command.prometheus) return prometheus_text(job.job, figures);
  const bool redraws = !command.once && ::isatty(STDOUT_FILENO) == 1;
  return (redraws ? kClearScreen : "") + top_text(job, figures);
}

Result<int> watch_job(const AskJobs& command, const std::vector<std::string>& folders) {
  const auto job = find_job(command.job, folders);
  if (!job) return job;
  auto connection = ControlConnection::open(folders, *job, {ControlRequest::Kind::kTop});
  if (!connection) return std::move(connection).error();
  auto summary = read_summary(*connection, *job);
  if (!summary) return summary.error();
  const auto asked = Clock::now();
  const double age_then = summary->age_s;
  for (;;) {
    const auto line = connection->read_line(kFiguresTimeout);
    // The job has ended: that is what a watcher waits for.
    if (!line && line.error().code == ErrorCode::kNotFound && !command.once) return 0;
    if (!line) return line.error().with_context("job " + std::to_string(*job));
    const auto figures = parse_figures(*line);
    if (!figures) return figures.error();
    summary->age_s = age_then + std::chrono::duration<double>(Clock::now() - asked).count();
    HORA_TRY(print(shown(command, *summary, *line, *figures)));
    if (command.once) return 0;
  }
}

}  // namespace

Result<std::optional<int>> follow_job(const std::vector<std::string>& folders, OutputReader reader,
                                      const Follow& follow) {
  return Follower(folders, follow, std::move(reader)).run();
}

Result<int> ask_jobs(const AskJobs& command, const std::string& runtime_directory) {
  const auto folders = control_folders(runtime_directory);
  switch (command.action) {
    case AskJobs::Action::kCancel:
      return cancel_job(command.job, command.json, folders);
    case AskJobs::Action::kTop:
      return watch_job(command, folders);
    case AskJobs::Action::kAttach:
      return attach_to_job(command.job, folders);
    default:
      return list_jobs(command.json, folders);
  }
}

}  // namespace hora::launcher
