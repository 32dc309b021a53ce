// SPDX-License-Identifier: Apache-2.0
// What becomes of ranks: exit codes, signals, programs that cannot be started.
#include <signal.h>

#include "tests/support/agent_driver.h"
#include "tests/support/catch.h"

using namespace hora::launcher;
using namespace hora::test;

TEST_CASE("a rank that succeeds") {
  AgentDriver agent;
  const Hello hello = agent.hello();
  CHECK(hello.pid > 0);
  CHECK(!hello.hostname.empty());
  CHECK(hello.cpus > 0);
  CHECK(hello.free_port > 0);
  agent.run(make_order({"echo", "hello"}));
  CHECK(agent.output[{0, 1}] == "hello\n");
  CHECK(agent.exits.at(0).exit_code == 0);
  CHECK(agent.exits.at(0).signal == 0);
  CHECK(!agent.exits.at(0).terminated_by_us);
  CHECK(agent.goodbye->survivors == 0);
  CHECK(agent.goodbye->killed == 0);
  CHECK(agent.wait_for_end());
  CHECK(agent.reap_shim());
}

TEST_CASE("frames of a rank come in order") {
  AgentDriver agent;
  agent.run(shell_order("echo out; echo err >&2"));
  using F = FrameType;
  REQUIRE(agent.order_of_frames.size() == 9);
  CHECK(agent.order_of_frames[0] == F::kHello);
  CHECK(agent.order_of_frames[1] == F::kReady);
  CHECK(agent.order_of_frames[2] == F::kStarted);
  CHECK(agent.order_of_frames[7] == F::kExit);
  CHECK(agent.order_of_frames[8] == F::kGoodbye);
  CHECK(agent.output_ends.size() == 2);
  CHECK(agent.exits.at(0).last_stderr == "err\n");
}

TEST_CASE("every exit code arrives") {
  AgentDriver agent;
  agent.run(shell_order("exit $RANK", 256));
  REQUIRE(agent.exits.size() == 256);
  for (int code = 0; code < 256; ++code) {
    CHECK(agent.exits.at(code).exit_code == code);
    CHECK(agent.exits.at(code).signal == 0);
  }
}

TEST_CASE("every deadly signal arrives") {
  AgentDriver agent;
  auto order = shell_order("ulimit -c 0; kill -$RANK $$", 0);
  for (int signal = 1; signal <= 31; ++signal) {
    if (signal == SIGCHLD || signal == SIGCONT || signal == SIGSTOP || signal == SIGTSTP ||
        signal == SIGTTIN || signal == SIGTTOU || signal == SIGURG || signal == SIGWINCH) {
      continue;
    }
    order.ranks.push_back({signal, 0, {{"RANK", std::to_string(signal)}}, StdinSource::kNull});
  }
  agent.run(order);
  REQUIRE(agent.exits.size() == order.ranks.size());
  for (const auto& [rank, exit] : agent.exits) {
    CHECK(exit.signal == rank);
    CHECK(!exit.terminated_by_us);
  }
}

TEST_CASE("a program that is not there") {
  AgentDriver agent;
  agent.run(make_order({"no-such-program-anywhere"}, 2));
  REQUIRE(agent.exits.size() == 2);
  const auto& exit = agent.exits.at(1);
  CHECK(exit.exit_code == 127);
  CHECK(exit.code == "E_PROGRAM_NOT_FOUND");
  CHECK(exit.stage == SpawnStage::kSearch);
  CHECK(exit.errnum == 0);
  CHECK(exit.program == "no-such-program-anywhere");
}

TEST_CASE("a program that cannot be executed") {
  AgentDriver agent;
  agent.run(make_order({"/etc/passwd"}));
  CHECK(agent.exits.at(0).exit_code == 126);
  CHECK(agent.exits.at(0).code == "E_NOT_EXECUTABLE");
  CHECK(agent.exits.at(0).errnum == EACCES);
  CHECK(agent.exits.at(0).program == "/etc/passwd");
}

TEST_CASE("a directory is not a program") {
  AgentDriver agent;
  agent.run(make_order({"/etc"}));
  CHECK(agent.exits.at(0).exit_code == 126);
  CHECK(agent.exits.at(0).code == "E_NOT_EXECUTABLE");
  CHECK(agent.exits.at(0).errnum == EISDIR);
}

TEST_CASE("a working directory that is not there") {
  AgentDriver agent;
  auto order = make_order({"true"});
  order.working_directory = "/no/such/place";
  agent.send_order(order);
  agent.wait_for_end();
  REQUIRE(agent.failure.has_value());
  CHECK(agent.failure->code == "E_CWD");
  CHECK(agent.failure->message.find("/no/such/place") != std::string::npos);
  CHECK(agent.failure->message.find("No such file or directory") != std::string::npos);
}

TEST_CASE("the last lines of standard error are kept") {
  AgentDriver agent;
  agent.run(
      shell_order("i=0; while [ $i -lt 2000 ]; do echo line $i >&2; i=$((i+1)); done; exit 3"));
  const std::string& tail = agent.exits.at(0).last_stderr;
  CHECK(tail.size() <= 4096);
  CHECK(tail.size() > 3500);
  CHECK(tail.substr(0, 5) == "line ");
  CHECK(tail.substr(tail.size() - 10) == "line 1999\n");
}
