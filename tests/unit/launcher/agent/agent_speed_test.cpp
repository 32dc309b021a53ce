// SPDX-License-Identifier: Apache-2.0
// Prints how long jobs take compared with a bare posix_spawn loop. No bar is asserted on: run by
// hand, "agent_speed_test [speed]", on a quiet machine.
#include <spawn.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <vector>

#include "tests/support/agent_driver.h"
#include "tests/support/catch.h"

using namespace hora::launcher;
using namespace hora::test;
using hora::Clock;

extern char** environ;

namespace {

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

double spawn_loop(int count) {
  const auto start = Clock::now();
  std::vector<pid_t> pids(static_cast<std::size_t>(count));
  char name[] = "/bin/true";
  char* argv[] = {name, nullptr};
  for (pid_t& pid : pids) REQUIRE(::posix_spawn(&pid, name, nullptr, nullptr, argv, environ) == 0);
  for (pid_t pid : pids) ::waitpid(pid, nullptr, 0);
  return ms_since(start);
}

struct Phases {
  double hello, ready, started, goodbye, end;
};

Phases job(int count) {
  Phases phases{};
  const auto start = Clock::now();
  AgentDriver agent;
  agent.hello();
  phases.hello = ms_since(start);
  agent.send_order(make_order({"/bin/true"}, count));
  agent.wait_for(FrameType::kReady);
  phases.ready = ms_since(start);
  agent.send(FrameType::kStart);
  agent.wait_for(FrameType::kStarted);
  phases.started = ms_since(start);
  agent.wait_for_goodbye();
  phases.goodbye = ms_since(start);
  agent.wait_for_end();
  phases.end = ms_since(start);
  return phases;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

TEST_CASE("how long a job takes", "[speed]") {
  std::printf("%6s %10s | %8s %8s %8s %8s %8s   (ms, medians)\n", "ranks", "spawn loop", "hello",
              "ready", "started", "goodbye", "end");
  for (int count : {1, 4, 16, 64, 128}) {
    const int rounds = count > 16 ? 7 : 21;
    std::vector<double> loop, hello, ready, started, goodbye, end;
    for (int i = 0; i < rounds; ++i) {
      loop.push_back(spawn_loop(count));
      const Phases p = job(count);
      hello.push_back(p.hello);
      ready.push_back(p.ready);
      started.push_back(p.started);
      goodbye.push_back(p.goodbye);
      end.push_back(p.end);
    }
    std::printf("%6d %10.2f | %8.2f %8.2f %8.2f %8.2f %8.2f\n", count, median(loop), median(hello),
                median(ready), median(started), median(goodbye), median(end));
  }
}

TEST_CASE("what 64 ranks cost the agent", "[speed]") {
  AgentDriver agent;
  agent.start(make_order({"sleep", "1000"}, 64));
  for (const auto& [name, pid] : {std::pair("shim", agent.shim()), {"agent", agent.agent()}}) {
    std::ifstream status("/proc/" + std::to_string(pid) + "/status");
    std::string line;
    while (std::getline(status, line)) {
      if (line.rfind("VmHWM:", 0) == 0) std::printf("%s %s\n", name, line.c_str());
    }
    const auto open = std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/fd");
    std::printf("%s open files: %td\n", name, std::distance(begin(open), end(open)));
  }
  agent.send_number(FrameType::kTerminate, 1'000);
  agent.wait_for_goodbye();
}
