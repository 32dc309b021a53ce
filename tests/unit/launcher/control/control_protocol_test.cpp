// SPDX-License-Identifier: Apache-2.0
#include "launcher/control/control_protocol.h"

#include "tests/support/catch.h"

using namespace hora;
using namespace hora::launcher;

using Kind = ControlRequest::Kind;

TEST_CASE("Requests are read as they are written") {
  for (const ControlRequest& request :
       {ControlRequest{Kind::kJob}, ControlRequest{Kind::kCancel}, ControlRequest{Kind::kAttach}}) {
    std::string text = control_request_text(request);
    REQUIRE(text.back() == '\n');
    CHECK(text.size() <= kLongestControlRequest);
    text.pop_back();
    CHECK(parse_control_request(text) == request);
  }
}

TEST_CASE("No other line is a request") {
  for (const char* line :
       {"", " ", "jobs", "job ", " job", "job 1", "JOB", "cancel now", "attached", "job\ncancel"}) {
    INFO(line);
    CHECK_FALSE(parse_control_request(line));
  }
}

TEST_CASE("Only a line with an exit code has one") {
  CHECK(parse_exit_code(exit_code_line(0)) == 0);
  CHECK(parse_exit_code(exit_code_line(143)) == 143);
  for (const std::string_view line :
       {std::string_view(""), kRunningLine, std::string_view("{\"exit_code\":256}"),
        std::string_view("{\"exit_code\":-1}"), std::string_view("{\"exit_code\":\"1\"}"),
        std::string_view("[1]"), std::string_view("1")}) {
    INFO(line);
    CHECK_FALSE(parse_exit_code(line));
  }
}

TEST_CASE("The summary of a job comes back from JSON") {
  JobSummary job;
  job.job = 12;
  job.state = "running";
  job.command = {"python3", "a \"b\".py"};
  job.hosts = {"a", "b"};
  job.ranks = 4;
  job.started_at = "2026-11-29T07:00:00Z";
  job.age_s = 1.25;
  const std::string text = job_summary_json(job);
  CHECK(text.find('\n') == text.size() - 1);
  const auto back = parse_job_summary(text);
  REQUIRE(back);
  CHECK(*back == job);
  for (const char* bad : {"", "{}", "[]", "7", "{\"job\":\"x\"}"})
    CHECK_FALSE(parse_job_summary(bad));
}

TEST_CASE("The list of jobs fits 80 columns") {
  CHECK(job_list_text({}) == "no job of yours is running on this machine\n");
  JobSummary job;
  job.job = 4'194'304;
  job.state = "not answering";
  job.command = {"python3", std::string(200, 'x')};
  job.hosts = std::vector<std::string>(1000, "a-node-with-a-long-name.example.com");
  job.ranks = 8000;
  job.age_s = 1e9;
  const std::string text = job_list_text({job, JobSummary{}});
  std::size_t start = 0;
  int lines = 0;
  for (std::size_t end = text.find('\n'); end != std::string::npos;
       start = end + 1, end = text.find('\n', start)) {
    CHECK(end - start <= 80);
    ++lines;
  }
  CHECK(lines == 3);
  CHECK(text.find(" +999") != std::string::npos);
}
