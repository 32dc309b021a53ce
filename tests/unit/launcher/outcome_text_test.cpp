#include "launcher/report/outcome_text.h"

#include "launcher/failures/failure_code.h"
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

TEST_CASE("what a host says does not steer the terminal") {
  JobOutcome outcome;
  outcome.cause = Cause{};
  outcome.cause->kind = Cause::Kind::kHost;
  outcome.cause->failure = {"E_CWD",
                            "directory '\x1b]0;x\x07\xc2\x9b"
                            "2J\x7f \xc3\xbc'",
                            "look\x1b[2J"};
  const std::string text = describe_outcome(outcome, kHosts, {});
  CHECK(text.find("'?]0;x??2J? \xc3\xbc'") != std::string::npos);
  CHECK(text.find("look?[2J") != std::string::npos);
}

TEST_CASE("python may have another name") {
  JobOutcome outcome = rank_failure(0, 127);
  outcome.cause->exit.spawn_error = "executing python: not found in PATH";
  CHECK(describe_outcome(outcome, kHosts, {}).find("it is called python3") != std::string::npos);
}

TEST_CASE("the command that shows a missing folder names it") {
  JobOutcome outcome;
  outcome.cause = Cause{};
  outcome.cause->kind = Cause::Kind::kHost;
  outcome.cause->host = 1;
  outcome.cause->failure = {"E_CWD", "host node2: working directory", ""};
  const std::string text = describe_outcome(outcome, kHosts, {"", "ssh", {}, "/work/my job"});
  CHECK(text.find(R"(  try: ssh node2 'ls -ld '\''/work/my job'\''')") != std::string::npos);
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

TEST_CASE("a rank that the host has no room for is not blamed on its program") {
  JobOutcome outcome = rank_failure(1, 126);
  outcome.cause->exit.spawn_error = "creating a process: Cannot allocate memory";
  CHECK(describe_outcome(outcome, kHosts, {}).find("E_NO_PROCESS") != std::string::npos);
  outcome.cause->exit.spawn_error = "executing /x: Permission denied";
  CHECK(describe_outcome(outcome, kHosts, {}).find("E_NOT_EXECUTABLE") != std::string::npos);
}

TEST_CASE("a rank that --chaos has killed: nobody looks for another culprit") {
  JobOutcome outcome = rank_failure(3, 0);
  outcome.cause->exit.signal = 9;
  const ChaosStrike strike{std::chrono::milliseconds(10'040), "node2", 3, 9, true};
  REQUIRE(describe_outcome(outcome, kHosts, {"", "ssh", {strike}}) ==
          "rank 3 on node2 was killed by SIGKILL\n"
          "  --chaos sent it that signal\n"
          "  what --chaos had done by then:\n"
          "    rank 3 on node2: SIGKILL (10.0 s)\n");
  SECTION("but it was another rank") {
    ChaosStrike other = strike;
    other.rank = 2;
    const std::string text = describe_outcome(outcome, kHosts, {"", "ssh", {other}});
    CHECK(text.find("sent it") == std::string::npos);
    CHECK(text.find("out-of-memory killer") != std::string::npos);
    CHECK(text.find("    rank 2 on node2: SIGKILL (10.0 s)\n") != std::string::npos);
  }
  SECTION("but it had ended") {
    ChaosStrike late = strike;
    late.sent = false;
    const std::string text = describe_outcome(outcome, kHosts, {"", "ssh", {late}});
    CHECK(text.find("sent it") == std::string::npos);
    CHECK(text.find("    rank 3 on node2 was gone: no SIGKILL (10.0 s)\n") != std::string::npos);
  }
  SECTION("many strikes are counted") {
    const std::string text =
        describe_outcome(outcome, kHosts, {"", "ssh", std::vector<ChaosStrike>(12, strike)});
    CHECK(text.find("    and 2 more\n") != std::string::npos);
  }
}
