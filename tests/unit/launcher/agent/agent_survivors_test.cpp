// SPDX-License-Identifier: Apache-2.0
// A process that even KILL does not end: the agent says so, by its deadline, and goes.
// Needs a cgroup v1 freezer, whose frozen processes do not take signals; skipped without.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "tests/support/agent_driver.h"
#include "tests/support/catch.h"
#include "tests/unit/launcher/agent/packing.h"

using namespace hora::launcher;
using namespace hora::test;

namespace {

class Freezer {
 public:
  Freezer() : path_("/sys/fs/cgroup/freezer/" + unique_word("hora-test")) {
    usable_ = ::geteuid() == 0 && std::filesystem::exists("/sys/fs/cgroup/freezer/cgroup.procs") &&
              ::mkdir(path_.c_str(), 0700) == 0;
  }
  ~Freezer() {
    if (!usable_) return;
    thaw();
    for (int i = 0; i < 5'000 && ::rmdir(path_.c_str()) != 0; ++i) ::usleep(1'000);
  }
  bool usable() const { return usable_; }
  void freeze(pid_t pid) {
    write_file(path_ + "/cgroup.procs", std::to_string(pid));
    write_file(path_ + "/freezer.state", "FROZEN");
    for (int i = 0; i < 5'000 && content_of(path_ + "/freezer.state") != "FROZEN\n"; ++i) {
      ::usleep(1'000);
    }
  }
  void thaw() { write_file(path_ + "/freezer.state", "THAWED"); }

 private:
  std::string path_;
  bool usable_ = false;
};

}  // namespace

TEST_CASE("a frozen rank is listed as a survivor") {
  Freezer freezer;
  if (!freezer.usable()) return;
  AgentDriver agent;
  auto order = make_order({"sleep", "1000"}, 3);
  agent.start(order);
  freezer.freeze(agent.pids.at(1));
  agent.send_number(FrameType::kTerminate, 200);
  agent.wait_for_goodbye();
  CHECK(agent.goodbye->survivors == 1);
  CHECK(agent.goodbye->survivor_pids == std::vector<std::int64_t>{agent.pids.at(1)});
  CHECK(agent.exits.size() == 2);
  CHECK(agent.wait_for_end());
  CHECK(agent.reap_shim());
  freezer.thaw();
  CHECK(all_gone(order.job_id, "no-such-argument-anywhere", std::chrono::milliseconds(20'000)));
}

TEST_CASE("a frozen child of a rank is listed as a survivor") {
  Freezer freezer;
  if (!freezer.usable()) return;
  const std::string word = unique_word("frozen");
  AgentDriver agent;
  std::vector<std::string> argv{HORA_TEST_WICKED_RANK, word, "setsid", "double-fork"};
  const bool main_ends = GENERATE(false, true);  // the main thread, others go on
  if (main_ends) argv.push_back("main-ends");
  auto order = make_order(std::move(argv));
  agent.start(order);
  agent.wait_for_output(0, "hidden");
  // Only the last of the processes that hide executes with these arguments.
  std::vector<pid_t> waiting;
  for (int i = 0; i < 5'000 && waiting.empty(); ++i) {
    waiting = processes_with_argument(word + std::string("\0wait", 5));
    if (waiting.empty()) ::usleep(1'000);
  }
  REQUIRE(waiting.size() == 1);
  const pid_t hidden = waiting.front();
  const std::string stat = "/proc/" + std::to_string(hidden) + "/stat";
  for (int i = 0; i < 5'000 && main_ends && content_of(stat).find(") Z ") == std::string::npos;
       ++i) {
    ::usleep(1'000);
  }
  freezer.freeze(hidden);
  SECTION("the job is ended") {
    agent.send_number(FrameType::kTerminate, 200);
    agent.wait_for_goodbye();
    CHECK(agent.goodbye->survivor_pids == std::vector<std::int64_t>{hidden});
  }
  SECTION("the agent is killed") { ::kill(agent.agent(), SIGKILL); }
  CHECK(agent.wait_for_end());
  CHECK(agent.reap_shim());
  CHECK(processes_with_argument(word).size() == 1);
  freezer.thaw();
  CHECK(all_gone(order.job_id, word, std::chrono::milliseconds(20'000)));
}
