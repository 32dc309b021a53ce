// SPDX-License-Identifier: Apache-2.0
// What a launcher and its clients on the same machine say to each other.  [pure]
// A client sends one line and the launcher answers with lines of JSON:
//   job      one JobSummary; then the launcher closes the connection
//   cancel   one JobSummary; the job is ended, and the connection closes when the launcher ends
//   top      one JobSummary; then JobFigures again and again, of all ranks
//   attach   one JobSummary; then, each when it comes, {"running":true} and {"exit_code":N}
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/result.h"

namespace hora::launcher {

inline constexpr std::size_t kLongestControlRequest = 128;

struct ControlRequest {
  enum class Kind { kJob, kCancel, kAttach, kTop };
  Kind kind = Kind::kJob;
  friend bool operator==(const ControlRequest&, const ControlRequest&) = default;
};

// Without the newline. Nothing for any other line.
std::optional<ControlRequest> parse_control_request(std::string_view line);
std::string control_request_text(const ControlRequest& request);  // with the newline

struct JobSummary {
  int job = 0;                     // the process of the launcher
  std::string state = "starting";  // "running", "ending"; "not answering": the launcher is stopped
  std::vector<std::string> command;
  std::vector<std::string> hosts;
  int ranks = 0;
  std::string started_at;  // RFC 3339
  double age_s = 0;
  friend bool operator==(const JobSummary&, const JobSummary&) = default;
};

inline constexpr std::string_view kRunningLine = "{\"running\":true}";
std::string exit_code_line(int exit_code);
std::optional<int> parse_exit_code(std::string_view line);  // nothing for any other line

std::string job_summary_json(const JobSummary& job);  // one line
// Bytes of another process: anything malformed is an Error.
Result<JobSummary> parse_job_summary(std::string_view json);

std::string command_text(const JobSummary& job);  // on one line
std::string age_text(double seconds);             // to the second: "1m30s"

// The table of `horarun jobs`, at most 80 columns; with a line that says so where there are none.
std::string job_list_text(const std::vector<JobSummary>& jobs);

}  // namespace hora::launcher
