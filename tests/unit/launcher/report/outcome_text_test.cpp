// SPDX-License-Identifier: Apache-2.0
#include "launcher/report/outcome_text.h"

#include <signal.h>

#include <cerrno>

#include "launcher/failures/explain.h"
#include "launcher/failures/failure_code.h"
#include "launcher/report/lost_records.h"
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

TEST_CASE("the lines by which Python marks a place leave room for the user's own") {
  const std::string frame =
      "  File \"lib.py\", line 1, in f\n    return g(x)\n           ^^^^~~^^\n";
  const std::string text = describe_outcome(
      rank_failure(3, 1,
                   "  File \"train.py\", line 7\n" + frame + frame + frame + frame + "Error\n"),
      kHosts, {});
  CHECK(text.find("train.py") != std::string::npos);
  CHECK(text.find('^') == std::string::npos);
}

TEST_CASE("the frames inside of Hora leave room for the user's own") {
  const std::string in_hora =
      "  File \"/c/bundle/python/hora/_calls.py\", line 1, in run_one\n    _run(x)\n    ^^^^\n"
      "  File \"/c/bundle/python/horovod/torch/mpi_ops.py\", line 2, in allreduce\n    return y\n";
  const std::string users = "  File \"train.py\", line 7, in <module>\n    hvd.allreduce(x)\n";
  const auto tail_of = [](const std::string& last_stderr) {
    return describe_outcome(rank_failure(3, 1, last_stderr), kHosts, {});
  };
  const std::string last = "hora.exceptions.HorovodInternalError: gone\n";
  const std::string many = in_hora + in_hora + in_hora;
  CHECK(tail_of("Traceback (most recent call last):\n" + users + many + last) ==
        "rank 3 on node2 exited with code 1\n"
        "  its last lines on stderr:\n"
        "    Traceback (most recent call last):\n"
        "      File \"train.py\", line 7, in <module>\n"
        "        hvd.allreduce(x)\n"
        "    hora.exceptions.HorovodInternalError: gone\n");
  // A frame of the user's that Hora has called.
  CHECK(tail_of(many + users + last).find("train.py") != std::string::npos);
  // Where there is room they stay.
  CHECK(tail_of(users + in_hora + last).find("_calls.py") != std::string::npos);
}

TEST_CASE("a script that is missing on this machine cannot be sent from it") {
  const JobOutcome outcome =
      rank_failure(3, 2, "python3: can't open file '/work/trian.py': [Errno 2] No such file\n");
  CHECK(describe_outcome(outcome, kHosts, {}).find("send it along with --ship") !=
        std::string::npos);
  OutcomeContext context;
  context.local = {false, true};
  const std::string text = describe_outcome(outcome, kHosts, context);
  CHECK(text.find("no such script on this machine\n  what to do: check its name") !=
        std::string::npos);
  CHECK(text.find("--ship") == std::string::npos);
}

TEST_CASE("a program in the ranks' directory is distinguished from one that is missing") {
  JobOutcome outcome = rank_failure(3, 127);
  outcome.cause->exit.stage = SpawnStage::kSearch;
  outcome.cause->exit.code = failure::kProgramNotFound;
  outcome.cause->exit.program = "run.sh";
  OutcomeContext context;
  CHECK(describe_outcome(outcome, kHosts, context).find("Install it on the host") !=
        std::string::npos);
  context.has_file = [](const std::string& path) { return path == "run.sh"; };
  CHECK(describe_outcome(outcome, kHosts, context).find("horarun ... ./run.sh\n") !=
        std::string::npos);
}

TEST_CASE("in a job of several programs, the one that failed is named") {
  OutcomeContext context;
  context.programs = {{{"./a"}, 2, {}}, {{"python3", "-u", "serve.py", "--port", "1"}, 2, {}}};
  CHECK(describe_outcome(rank_failure(1, 7), kHosts, context)
            .find("rank 1 on node2 (./a) exited with code 7\n") == 0);
  CHECK(describe_outcome(rank_failure(2, 7), kHosts, context)
            .find("rank 2 on node2 (python3 -u serve.py ...) exited with code 7\n") == 0);
  context.programs[1].command = {"x\n", "--token=abc", std::string(500, 'y')};
  const std::string text = describe_outcome(rank_failure(3, 7), kHosts, context);
  CHECK(text.find("--token=***") != std::string::npos);
  CHECK(text.find('\n') < 200);
}

TEST_CASE("what the rank did last, where it is known") {
  JobOutcome outcome = rank_failure(3, 0);
  outcome.cause->exit.signal = 6;
  outcome.cause->exit.last_operation = "was in allreduce 'grad/7' for 2.1 s";
  REQUIRE(describe_outcome(outcome, kHosts, {}) ==
          "rank 3 on node2 was killed by SIGABRT\n"
          "  it was in allreduce 'grad/7' for 2.1 s\n");
}

TEST_CASE("a rank that only follows another one is reported after that one") {
  JobOutcome outcome = rank_failure(0, 1, "HorovodInternalError: rank 2 (node2) has shut down\n");
  CHECK(describe_outcome(outcome, kHosts, {}).find("the same number of steps") !=
        std::string::npos);
  RankExit& other = outcome.exits[2];
  other.rank = 2;
  other.terminated_by_us = true;
  other.signal = 15;
  other.last_stderr = "a warning\n";
  CHECK(describe_outcome(outcome, kHosts, {}).find("rank 0 on node2 exited with code 1\n") == 0);
  other.last_stderr = "Traceback (most recent call last):\nValueError: boom\n";
  CHECK(describe_outcome(outcome, kHosts, {}) ==
        "rank 2 failed first; rank 0 on node2 exited with code 1 because of it\n"
        "  the last lines of rank 2 on stderr:\n"
        "    Traceback (most recent call last):\n"
        "    ValueError: boom\n"
        "  1 rank was terminated\n");
}

TEST_CASE("a rank that left with code 0 is named before those that it left waiting") {
  JobOutcome outcome = rank_failure(0, 1, "HorovodInternalError: rank 2 (node2) has shut down\n");
  outcome.exits[2].rank = 2;
  const std::string text = describe_outcome(outcome, kHosts, {});
  CHECK(text.find("rank 2 left first, with exit code 0; rank 0 on node2 exited with code 1 because "
                  "of it\n  the last lines of rank 0 on stderr:\n") == 0);
  CHECK(text.find("the same number of steps") != std::string::npos);
}

TEST_CASE("ranks that failed because of the first one are not other failures") {
  JobOutcome outcome = rank_failure(1, 3, "ValueError: boom\n");
  for (const int rank : {0, 2, 3, 7}) {
    RankExit& exit = outcome.exits[rank];
    exit.rank = rank;
    exit.exit_code = 1;
    exit.terminated_by_us = rank == 7;
    exit.last_stderr = "Traceback (most recent call last):\nE: rank 1 (node2) has shut down\n";
  }
  CHECK(describe_outcome(outcome, kHosts, {}) ==
        "rank 1 on node2 exited with code 3\n"
        "  its last lines on stderr:\n"
        "    ValueError: boom\n"
        "  exit code 3: rank 1; ranks 0,2,3,7 failed because of it\n");
  outcome.exits[4].rank = 4;
  outcome.exits[4].exit_code = 5;
  const std::string text = describe_outcome(outcome, kHosts, {});
  CHECK(text.find("  exit code 3: rank 1; ranks 0,2,3,7 failed because of it\n"
                  "  1 other rank failed after it\n"
                  "  exit code 3: rank 1\n"
                  "  exit code 5: rank 4\n") != std::string::npos);
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

TEST_CASE("what a host says stands under its own name") {
  JobOutcome outcome;
  outcome.cause = Cause{};
  outcome.cause->kind = Cause::Kind::kHost;
  outcome.cause->host = 1;
  const auto text = [&](const std::string& message, const std::string& subject = "") {
    outcome.cause->failure = {"E_OTHER", message, "", subject};
    return describe_outcome(outcome, kHosts, {});
  };
  CHECK(text("no", "host node2 (10.0.0.2)") == "host node2 (10.0.0.2): no [E_OTHER]\n");
  CHECK(text("no", "host node1 (10.0.0.1)") == "host node2: no [E_OTHER]\n");
  CHECK(text("no", "host node22 (10.0.0.2)") == "host node2: no [E_OTHER]\n");
  CHECK(text("no", "host node2 (\nx)").find('\n') == text("no", "host node2 (\nx)").size() - 1);
  CHECK(text("host node1: no") == "host node2: host node1: no [E_OTHER]\n");
  CHECK(text("no\nhorarun: all is well\n    more") ==
        "host node2: no\n  horarun: all is well\n    more [E_OTHER]\n");
}

TEST_CASE("what could not be ended is not listed without end") {
  JobOutcome outcome;
  outcome.goodbyes[1] = {5, {11, 12}, 0};
  CHECK(describe_outcome(outcome, kHosts, {}) ==
        "host node2: 5 processes of the job could not be ended: 11 12 and 3 more\n");
}

TEST_CASE("lost records: each with its reason and class, not without end") {
  CHECK(lost_records_text({}).empty());
  CHECK(lost_records_text({{"--report", "writing x: Disk quota exceeded", "E_REPORT"}}) ==
        "not all of the job's record could be written:\n"
        "  --report: writing x: Disk quota exceeded [E_REPORT]\n");
  const std::string many = lost_records_text(std::vector<LostRecord>(100, {"a", "b", "E_OUTPUT"}));
  CHECK(many.size() < 1'000);
  CHECK(many.find("  and 68 more\n") != std::string::npos);
}

TEST_CASE("python may have another name") {
  JobOutcome outcome = rank_failure(0, 127);
  outcome.cause->exit.code = failure::kProgramNotFound;
  outcome.cause->exit.stage = SpawnStage::kSearch;
  outcome.cause->exit.program = "python";
  CHECK(describe_outcome(outcome, kHosts, {}).find("it is called python3") != std::string::npos);
}

TEST_CASE("the command that shows a missing folder names it") {
  JobOutcome outcome;
  outcome.cause = Cause{};
  outcome.cause->kind = Cause::Kind::kHost;
  outcome.cause->host = 1;
  outcome.cause->failure = {"E_CWD", "working directory", ""};
  const std::string text = describe_outcome(outcome, kHosts, {"", "ssh", {}, "/work/my job"});
  CHECK(text.find(R"(  try: ssh node2 'ls -ld '\''/work/my job'\''')") != std::string::npos);
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
  outcome.goodbyes[1] = {1, {}, 0, true};
  REQUIRE(describe_outcome(outcome, kHosts, {}) ==
          "host node2: 1 process of the job could not be ended (they fork and exit faster than "
          "they can be killed)\n");
}

TEST_CASE("a rank that the host has no room for is not reported as a failure of its program") {
  JobOutcome outcome = rank_failure(1, 126);
  RankExit& exit = outcome.cause->exit;
  exit.code = failure::kNoProcess;
  exit.stage = SpawnStage::kClone;
  exit.errnum = ENOMEM;
  CHECK(describe_outcome(outcome, kHosts, {})
            .find("rank 1 on node2 could not be started: creating a process: Cannot allocate "
                  "memory\n  [E_NO_PROCESS] ") == 0);
}

TEST_CASE("a rank that --chaos has killed: no other cause is reported") {
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

TEST_CASE("faults of GPUs stand behind the first cause") {
  JobOutcome outcome = rank_failure(3, 1);
  OutcomeContext context;
  context.gpu_faults = {
      {"node2", {"0000:3b:00", 79, 3, 4711, "python3", "GPU has fallen \x1b off the bus."}},
      {"node1", {"0000:18:00", 45, -1, 99, "other", "Ch 1"}},
      {"node1", {"0000:18:00", 9'000, -1, 0, "", ""}}};
  const std::string text = describe_outcome(outcome, kHosts, context);
  INFO(text);
  CHECK(text.find("rank 3 on node2 exited with code 1\n") == 0);
  CHECK(text.find("  GPU 0000:3b:00 of node2 (rank 3, pid 4711): Xid 79, the GPU has fallen off "
                  "the bus: the host "
                  "cannot reach it any more: GPU has fallen ? off the bus.\n    what to do: "
                  "power-cycle the host") != std::string::npos);
  CHECK(text.find("  GPU 0000:18:00 of node1 (pid 99, other): Xid 45, ") != std::string::npos);
  CHECK(text.find("  GPU 0000:18:00 of node1: Xid 9000\n    what to do: see NVIDIA's catalogue: "
                  "https://docs.nvidia.com/deploy/xid-errors/\n") != std::string::npos);
  context.gpu_faults.resize(7, context.gpu_faults[0]);
  CHECK(describe_outcome(outcome, kHosts, context).find("  and 3 more faults of GPUs\n") !=
        std::string::npos);
}

TEST_CASE("the table of Xids is in order and says what to do") {
  int last = 0;
  for (const XidClass& row : xid_classes()) {
    CHECK(row.code > last);
    last = row.code;
    CHECK((!row.meaning.empty() && !row.fix.empty()));
    CHECK(find_xid(row.code) == &row);
  }
  CHECK(find_xid(1) == nullptr);
}

TEST_CASE("signals of limits are reported as such") {
  JobOutcome outcome = rank_failure(3, 0);
  outcome.cause->exit.signal = SIGXFSZ;
  CHECK(describe_outcome(outcome, kHosts, {}).find("(ulimit -f)\n") != std::string::npos);
  outcome.cause->exit.signal = SIGXCPU;
  CHECK(describe_outcome(outcome, kHosts, {}).find("(ulimit -t)\n") != std::string::npos);
}

TEST_CASE("ten thousand hosts that confirm nothing are one line") {
  std::vector<HostPlan> hosts(10'000);
  for (std::size_t k = 0; k < hosts.size(); ++k) hosts[k].host.name = "n" + std::to_string(k);
  JobOutcome outcome;
  outcome.unconfirmed_hosts = {7};
  CHECK(
      describe_outcome(outcome, hosts, {}) ==
      "host n7 did not confirm that its ranks have ended; they end by themselves within --lease\n");
  for (int k = 0; k < 10'000; ++k) outcome.unconfirmed_hosts.push_back(k);
  outcome.unconfirmed_hosts.erase(outcome.unconfirmed_hosts.begin());
  CHECK(describe_outcome(outcome, hosts, {}) ==
        "hosts n0, n1, n2, n3, n4, n5, n6, n7 and 9992 more did not confirm that their ranks have "
        "ended; they end with their agents' leases\n");
  outcome.unconfirmed_hosts.resize(8);
  CHECK(describe_outcome(outcome, hosts, {}).find("n6, n7 did not confirm") != std::string::npos);
}

TEST_CASE("a program that cannot be started is reported once, whatever other ranks did") {
  JobOutcome outcome = rank_failure(1, 127);
  outcome.cause->exit.code = failure::kProgramNotFound;
  outcome.cause->exit.stage = SpawnStage::kSearch;
  outcome.cause->exit.program = "x";
  for (int rank = 0; rank < 2; ++rank) outcome.exits[rank] = outcome.cause->exit;
  outcome.exits[0].rank = 0;
  const std::string text = describe_outcome(outcome, kHosts, {});
  CHECK(text.find("failed after it") == std::string::npos);
  CHECK(text.find("not started") == std::string::npos);
}

TEST_CASE("a signal from somewhere is not said to be the kernel's") {
  JobOutcome outcome = rank_failure(1, 0);
  outcome.cause->exit.signal = 9;
  CHECK(describe_outcome(outcome, kHosts, {}).find("horarun did not send that signal") !=
        std::string::npos);
}

TEST_CASE("on this machine a command needs no ssh") {
  JobOutcome outcome;
  outcome.cause = Cause{};
  outcome.cause->kind = Cause::Kind::kHost;
  outcome.cause->host = 1;
  outcome.cause->failure = {std::string(failure::kCwd), "not there", ""};
  OutcomeContext context;
  context.working_directory = "/my dir";
  CHECK(describe_outcome(outcome, kHosts, context).find("  try: ssh node2 ") != std::string::npos);
  context.local = {false, true};
  CHECK(describe_outcome(outcome, kHosts, context).find("  try: ls -ld '/my dir'\n") !=
        std::string::npos);
  outcome.cause->failure.code = failure::kBind;
  CHECK(describe_outcome(outcome, kHosts, context).find("  try: grep Cpus_allowed_list /proc") !=
        std::string::npos);
  // A host that has connected by itself: no advice to use ssh.
  outcome.cause->failure.code = failure::kCwd;
  context.local = {};
  context.reach.clear();
  CHECK(describe_outcome(outcome, kHosts, context).find("  try on node2: ls -ld '/my dir'\n") !=
        std::string::npos);
  outcome.cause->failure.code = failure::kConnect;
  CHECK(describe_outcome(outcome, kHosts, context).find("try") == std::string::npos);
}

TEST_CASE("ranks that others waited for in init, and that had ended well, are named") {
  JobOutcome outcome = rank_failure(0, 1,
                                    "InitError: joining the job: timed out waiting for rank 1 to "
                                    "start (HOROVOD_GLOO_TIMEOUT_SECONDS sets");
  OutcomeContext context;
  context.only_rank_0_has_stdin = true;
  const std::string usual = "what it means: who is missing has not called init() in time";
  CHECK(describe_outcome(outcome, kHosts, context).find(usual) != std::string::npos);
  outcome.exits[1] = RankExit{};
  outcome.exits[1].rank = 1;
  const std::string text = describe_outcome(outcome, kHosts, context);
  CHECK(text.find(usual) == std::string::npos);
  CHECK(text.find("what it means: rank 1 had ended with code 0, while others waited in init()") !=
        std::string::npos);
  CHECK(text.find("--stdin all") != std::string::npos);
  context.only_rank_0_has_stdin = false;
  CHECK(describe_outcome(outcome, kHosts, context).find("--stdin") == std::string::npos);
}
