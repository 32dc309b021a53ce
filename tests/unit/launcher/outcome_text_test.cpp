#include "launcher/outcome_text.h"

#include "launcher/failure_code.h"
#include "tests/support/catch.h"

using namespace hora::launcher;

namespace {

const std::vector<HostPlan> kHosts = [] {
  std::vector<HostPlan> hosts(2);
  hosts[0].host.name = "node1";
  hosts[1].host.name = "node2";
  return hosts;
}();

JobOutcome rank_failure(int rank, int code, std::string last_stderr = {}) {
  JobOutcome outcome;
  Cause cause;
  cause.kind = Cause::Kind::kRank;
  cause.host = 1;
  cause.exit.rank = rank;
  cause.exit.exit_code = code;
  cause.exit.last_stderr = std::move(last_stderr);
  outcome.exits[rank] = cause.exit;
  outcome.cause = cause;
  return outcome;
}

}  // namespace

TEST_CASE("success says nothing") { REQUIRE(describe_outcome({}, kHosts, {}).empty()); }

TEST_CASE("the failing rank, its host, its code and its last lines") {
  JobOutcome outcome = rank_failure(3, 7, "a\nTraceback\n  boom\x07\n");
  RankExit other;
  other.rank = 0;
  other.signal = 15;
  other.terminated_by_us = true;
  outcome.exits[0] = other;
  REQUIRE(describe_outcome(outcome, kHosts, {}) ==
          "rank 3 on node2 exited with code 7\n"
          "  its last lines on stderr:\n"
          "    a\n"
          "    Traceback\n"
          "      boom?\n"
          "  1 rank was terminated\n");
}

TEST_CASE("what the rank did last, where it is known") {
  JobOutcome outcome = rank_failure(3, 0);
  outcome.cause->exit.signal = 6;
  outcome.cause->exit.last_operation = "was in allreduce 'grad/7' for 2.1 s";
  REQUIRE(describe_outcome(outcome, kHosts, {}) ==
          "rank 3 on node2 was killed by SIGABRT\n"
          "  it was in allreduce 'grad/7' for 2.1 s\n");
}

TEST_CASE("only the last ten lines are quoted") {
  std::string words;
  for (int i = 0; i < 30; ++i) words += "line " + std::to_string(i) + "\n";
  const std::string text = describe_outcome(rank_failure(1, 1, words), kHosts, {});
  REQUIRE(text.find("line 20\n") != std::string::npos);
  REQUIRE(text.find("line 19\n") == std::string::npos);
}

TEST_CASE("signals have names") {
  REQUIRE(signal_name(11) == "SIGSEGV");
  REQUIRE(signal_name(63) == "signal 63");
}

TEST_CASE("a time-out names who was waited for") {
  JobOutcome outcome;
  Cause cause;
  cause.kind = Cause::Kind::kTimeout;
  cause.failure = {std::string(failure::kStartTimeout), "not ready within 3 s", ""};
  outcome.cause = cause;
  const std::string text = describe_outcome(outcome, kHosts, {"  node2 (authenticate)\n", "ssh"});
  REQUIRE(text.find("E_START_TIMEOUT") != std::string::npos);
  REQUIRE(text.find("  node2 (authenticate)\n") != std::string::npos);
}

TEST_CASE("what could not be ended is listed") {
  JobOutcome outcome;
  outcome.goodbyes[1] = {2, {11, 12}, 0};
  REQUIRE(describe_outcome(outcome, kHosts, {}) ==
          "host node2: 2 processes of the job could not be ended: 11 12\n");
}
