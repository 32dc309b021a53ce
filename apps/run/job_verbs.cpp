// SPDX-License-Identifier: Apache-2.0
#include "apps/run/job_verbs.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "apps/run/follow_job.h"
#include "launcher/control/control_client.h"
#include "launcher/control/control_folder.h"
#include "launcher/control/kept_output.h"
#include "launcher/protocol/exit_code.h"
#include "rendezvous/base/time.h"

namespace hora::launcher {

namespace {

constexpr Milliseconds kAnswerTimeout{5'000};
// A job has its grace, and its hosts as much again; see --grace.
constexpr Milliseconds kEndTimeout{120'000};

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

}  // namespace

Result<int> ask_jobs(const AskJobs& command, const std::string& runtime_directory) {
  const auto folders = control_folders(runtime_directory);
  switch (command.action) {
    case AskJobs::Action::kCancel:
      return cancel_job(command.job, command.json, folders);
    case AskJobs::Action::kAttach:
      return attach_to_job(command.job, folders);
    default:
      return list_jobs(command.json, folders);
  }
}

}  // namespace hora::launcher
