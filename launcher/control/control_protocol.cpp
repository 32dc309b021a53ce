// SPDX-License-Identifier: Apache-2.0
#include "launcher/control/control_protocol.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>

#include <nlohmann/json.hpp>

#include "launcher/text/text.h"
#include "launcher/text/units.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kLineWidth = 80;
constexpr std::size_t kHostsWidth = 20;

constexpr std::pair<std::string_view, ControlRequest::Kind> kWords[] = {
    {"job", ControlRequest::Kind::kJob},
    {"cancel", ControlRequest::Kind::kCancel},
    {"attach", ControlRequest::Kind::kAttach},
    {"top", ControlRequest::Kind::kTop},
};

// "node1 +999": the first host, and how many more there are.
std::string hosts_text(const std::vector<std::string>& hosts) {
  if (hosts.empty()) return "-";
  const std::string rest = hosts.size() > 1 ? " +" + std::to_string(hosts.size() - 1) : "";
  return shortened(hosts.front(), kHostsWidth - 2 - rest.size()) + rest;
}

}  // namespace

// One blank between two words, and nothing else: clients are of this version, so there is nothing
// to be generous with.
std::optional<ControlRequest> parse_control_request(std::string_view line) {
  for (const auto& [word, kind] : kWords) {
    if (line == word) return ControlRequest{kind};
  }
  return std::nullopt;
}

std::string control_request_text(const ControlRequest& request) {
  for (const auto& [word, kind] : kWords) {
    if (kind == request.kind) return std::string(word) + "\n";
  }
  return "\n";
}

std::string exit_code_line(int exit_code) {
  return "{\"exit_code\":" + std::to_string(exit_code) + "}";
}

std::optional<int> parse_exit_code(std::string_view line) {
  const auto in = Json::parse(line, nullptr, false);
  if (!in.is_object()) return std::nullopt;
  const auto found = in.find("exit_code");
  if (found == in.end() || !found->is_number_integer()) return std::nullopt;
  const auto code = found->get<std::int64_t>();
  return code >= 0 && code <= 255 ? std::optional(static_cast<int>(code)) : std::nullopt;
}

std::string job_summary_json(const JobSummary& job) {
  Json out;
  out["job"] = job.job;
  out["state"] = job.state;
  out["command"] = job.command;
  out["ranks"] = job.ranks;
  out["hosts"] = job.hosts;
  out["started_at"] = job.started_at;
  out["age_s"] = static_cast<double>(static_cast<std::int64_t>(job.age_s * 1000)) / 1000;
  return out.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

// The library throws where a field is missing or of another type.
Result<JobSummary> parse_job_summary(std::string_view json) {
  const auto in = Json::parse(json, nullptr, false);
  JobSummary job;
  if (in.is_object()) {
    try {
      in.at("job").get_to(job.job);
      in.at("state").get_to(job.state);
      in.at("command").get_to(job.command);
      in.at("ranks").get_to(job.ranks);
      in.at("hosts").get_to(job.hosts);
      in.at("started_at").get_to(job.started_at);
      in.at("age_s").get_to(job.age_s);
      return job;
    } catch (const Json::exception&) {
    }
  }
  return make_error(ErrorCode::kFailed, "the launcher answered what is not the summary of a job");
}

std::string command_text(const JobSummary& job) { return visible_line(join(job.command, " ")); }

std::string age_text(double seconds) {
  constexpr double kLongest = 364.0 * 24 * 3600;
  const double shown = std::clamp(seconds, 0.0, kLongest);
  return format_duration(std::chrono::seconds(nearest(shown)));
}

std::string job_list_text(const std::vector<JobSummary>& jobs) {
  if (jobs.empty()) return "no job of yours is running on this machine\n";
  // The program has what the other columns leave.
  const auto row = [](const std::string& job, const std::string& state, const std::string& age,
                      const std::string& ranks, const std::string& hosts,
                      const std::string& program) {
    const std::string line = column(job, 9) + column(state, 10) + column(age, 11) +
                             column(ranks, 7) + column(hosts, kHostsWidth);
    return line + shortened(program, kLineWidth - 3 - line.size()) + "\n";
  };
  std::string out = row("JOB", "STATE", "AGE", "RANKS", "HOSTS", "PROGRAM");
  for (const JobSummary& job : jobs) {
    out += row(std::to_string(job.job), job.state, age_text(job.age_s), std::to_string(job.ranks),
               hosts_text(job.hosts), command_text(job));
  }
  return out;
}

}  // namespace hora::launcher
