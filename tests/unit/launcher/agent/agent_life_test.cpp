// SPDX-License-Identifier: Apache-2.0
// Nothing survives: whichever process is killed or stopped, whatever the ranks do. Survivors are
// counted by the job's mark in the environment and by a word in the command line; zombies are not,
// unless another thread of theirs lives. Ranks that outnumber the CPUs share a session: with one
// CPU.
#include <signal.h>
#include <sys/inotify.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "launcher/process/one_cpu.h"
#include "launcher/process/process_table.h"
#include "rendezvous/os/fd.h"
#include "tests/support/agent_driver.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/launcher/agent/packing.h"

using namespace hora::launcher;
using namespace hora::test;
using std::chrono::milliseconds;

namespace {

constexpr milliseconds kTimeout{20'000};

struct Scene {
  std::string word = unique_word("wicked");
  HostOrder order;
  std::unique_ptr<OneCpu> one_cpu;  // while the agent starts
  AgentDriver agent;

  explicit Scene(std::vector<std::string> features, bool one_session = false)
      : one_cpu(one_session ? OneCpu::stay() : nullptr) {
    constexpr int ranks = 2;
    one_cpu.reset();
    features.insert(features.begin(), {HORA_TEST_WICKED_RANK, word});
    order = make_order(std::move(features), ranks);
    order.grace_ms = 300;
    agent.start(order);
    for (int rank = 0; rank < ranks; ++rank) agent.wait_for_output(rank, "hidden");
    if (order.argv.back() == "leave") return;  // the agent may be done with them already
    REQUIRE(!processes_with_argument(word).empty());
  }
  bool clean() { return all_gone(order.job_id, word, kTimeout); }
  bool clean_now() { return all_gone(order.job_id, word, milliseconds(0)); }
};

std::string name_of(const std::vector<std::string>& features) {
  std::string name;
  for (const std::string& feature : features) name += " " + feature;
  return name.empty() ? " a plain one" : name;
}

const std::vector<std::vector<std::string>> kWickedness{
    {},
    {"ignore-term"},
    {"setsid"},
    {"setsid", "double-fork"},
    {"setsid", "double-fork", "ignore-term"},
    {"setsid", "double-fork", "ignore-term", "close-fds"},
    {"setsid", "double-fork", "ignore-term", "close-fds", "clear-env"},
    {"setsid", "double-fork", "ignore-term", "close-fds", "clear-env", "stop"},
    {"stop"},
    {"storm", "ignore-term"},
    {"main-ends"},
    {"setsid", "double-fork", "main-ends", "ignore-term"},
    {"setsid", "double-fork", "main-ends", "clear-env"},
    {"chain", "ignore-term"},
    {"chain", "setsid", "leave-cgroup", "ignore-term", "close-fds"},
    {"own-group", "double-fork", "ignore-term", "close-fds", "clear-env"},
    {"own-group", "double-fork", "ignore-term", "stop"},
    {"join-agent", "ignore-term"},
};

template <typename Check>
void with_each_wickedness(const Check& check) {
  // With the agent on an old kernel (HORA_TEST_AGENT) each runs once, by turns with one session or
  // more.
  const bool by_turns = std::getenv("HORA_TEST_AGENT") != nullptr;
  for (const bool one_session : {false, true}) {
    for (std::size_t i = 0; i < kWickedness.size(); ++i) {
      if (by_turns && (i % 2 == 0) == one_session) continue;
      const auto& features = kWickedness[i];
      INFO(name_of(features) << (one_session ? ", in one session" : ""));
      check(features, one_session);
    }
  }
}

// SIGSTOP, and done.
void stop(pid_t pid) {
  REQUIRE(::kill(pid, SIGSTOP) == 0);
  for (int i = 0; i < 20'000; ++i) {
    const auto process = read_process(pid);
    REQUIRE(process.has_value());
    if (process->state == 'T') return;
    ::usleep(1'000);
  }
  FAIL("process " << pid << " does not stop");
}

}  // namespace

TEST_CASE("the launcher asks the agent to end the job") {
  with_each_wickedness([](const auto& features, bool one_session) {
    Scene scene(features, one_session);
    scene.agent.send_number(FrameType::kTerminate, 300);
    scene.agent.wait_for_goodbye();
    CHECK(scene.clean_now());
    CHECK(scene.agent.goodbye->survivors == 0);
    for (const auto& [rank, exit] : scene.agent.exits) CHECK(exit.terminated_by_us);
  });
}

TEST_CASE("the launcher dies") {
  with_each_wickedness([](const auto& features, bool one_session) {
    Scene scene(features, one_session);
    scene.agent.close();
    CHECK(scene.clean());
    CHECK(scene.agent.reap_shim());
  });
}

TEST_CASE("the launcher dies before its agent reads that the ranks are to start") {
  namespace fs = std::filesystem;
  const fs::path folder = fs::temp_directory_path() / unique_word("hora-test-start");
  fs::create_directory(folder);
  const std::string interpreter = folder / "interpreter";
  fs::copy_file("/bin/sh", interpreter);
  std::ofstream(folder / "rank") << "#!" << interpreter << "\nexit 0\n";
  fs::permissions(folder / "rank", fs::perms::owner_all);
  // Only the kernel opens it, when it executes the rank.
  const hora::os::Fd opened(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  REQUIRE(::inotify_add_watch(opened.get(), interpreter.c_str(), IN_OPEN) >= 0);
  const auto rank_was_executed = [&opened] {
    char events[4096];
    return ::read(opened.get(), events, sizeof events) > 0;
  };
  const HostOrder order = make_order({folder / "rank"});
  for (const bool dies : {false, true}) {
    AgentDriver agent;
    agent.hello();
    if (dies) stop(agent.agent());
    agent.send_order(order);
    agent.send(FrameType::kStart);
    if (dies) {
      agent.close();  // the shim continues the agent
    } else {
      agent.wait_for_goodbye();
    }
    CHECK(agent.reap_shim());
    CHECK(rank_was_executed() == !dies);
  }
  fs::remove_all(folder);
}

TEST_CASE("the agent is killed") {
  with_each_wickedness([](const auto& features, bool one_session) {
    Scene scene(features, one_session);
    ::kill(scene.agent.agent(), SIGKILL);
    // The stream's end says that the host is clean.
    CHECK(scene.agent.wait_for_end());
    CHECK(scene.clean_now());
    CHECK(!scene.agent.goodbye.has_value());
    CHECK(scene.agent.reap_shim());
  });
}

TEST_CASE("the agent has run out of descriptors") {
  for (const auto& features : kWickedness) {
    for (const rlim_t spare : {0, 1, 2}) {
      INFO(name_of(features) << ", " << spare << " spare descriptors");
      Scene scene(features);
      const pid_t pid = scene.agent.agent();
      const std::filesystem::directory_iterator open("/proc/" + std::to_string(pid) + "/fd");
      const auto used = static_cast<rlim_t>(std::distance(begin(open), end(open)));
      const rlimit limit{used + spare, used + spare};
      REQUIRE(::prlimit(pid, RLIMIT_NOFILE, &limit, nullptr) == 0);
      scene.agent.send_number(FrameType::kTerminate, 300);
      CHECK(scene.agent.wait_for_end());
      CHECK(scene.clean_now());
      CHECK(scene.agent.reap_shim());
    }
  }
}

TEST_CASE("the shim is killed") {
  with_each_wickedness([](const auto& features, bool one_session) {
    Scene scene(features, one_session);
    ::kill(scene.agent.shim(), SIGKILL);
    CHECK(scene.agent.wait_for_end());
    CHECK(scene.clean_now());
    REQUIRE(scene.agent.failure.has_value());
    CHECK(scene.agent.failure->code == "E_AGENT");
    CHECK(scene.agent.goodbye.has_value());
  });
}

TEST_CASE("the shim gets SIGTERM") {
  Scene scene({"ignore-term"});
  ::kill(scene.agent.shim(), SIGTERM);
  scene.agent.wait_for_goodbye();
  CHECK(scene.clean_now());
}

TEST_CASE("the launcher falls silent") {
  const std::string word = unique_word("silence");
  AgentDriver agent;
  auto order = make_order({HORA_TEST_WICKED_RANK, word, "setsid", "ignore-term"});
  order.grace_ms = 200;
  order.lease_ms = 600;
  agent.start(order);
  agent.wait_for_output(0, "hidden");
  CHECK(all_gone(order.job_id, word, kTimeout));
  CHECK(agent.wait_for_end());
}

TEST_CASE("a launcher on this machine may be silent while it is at work") {
  AgentDriver agent({"--launcher", std::to_string(::getpid())});
  auto order = shell_order("sleep 2; echo lived");
  order.lease_ms = 200;
  agent.start(order);
  agent.wait_for_goodbye();
  CHECK(agent.output[{0, 1}] == "lived\n");
}

TEST_CASE("a launcher on this machine that is stopped, or gone, may not be silent") {
  const pid_t launcher = ::fork();
  REQUIRE(launcher >= 0);
  if (launcher == 0) {
    while (true) ::pause();
  }
  SECTION("stopped") {
    int status = 0;
    ::kill(launcher, SIGSTOP);
    REQUIRE(::waitpid(launcher, &status, WUNTRACED) == launcher);
  }
  SECTION("gone") { ::kill(launcher, SIGKILL); }
  {
    const std::string word = unique_word("silence");
    AgentDriver agent({"--launcher", std::to_string(launcher)});
    auto order = make_order({HORA_TEST_WICKED_RANK, word, "setsid", "ignore-term"});
    order.grace_ms = 200;
    order.lease_ms = 600;
    agent.start(order);
    CHECK(all_gone(order.job_id, word, kTimeout));
    CHECK(agent.wait_for_end());
  }
  ::kill(launcher, SIGKILL);
  ::waitpid(launcher, nullptr, 0);
}

TEST_CASE("an agent that starts many ranks says meanwhile that it lives") {
  AgentDriver agent({"--launcher", std::to_string(::getpid())});
  auto order = make_order({"/bin/true"}, 400);
  order.lease_ms = 50;
  agent.hello();
  agent.send_order(order);
  agent.wait_for(FrameType::kReady);
  const int before = agent.heartbeats;
  const auto begun = std::chrono::steady_clock::now();
  agent.send(FrameType::kStart);
  agent.wait_for(FrameType::kStarted);
  const auto took = std::chrono::steady_clock::now() - begun;
  // One every quarter of the lease, if a single rank takes no longer.
  INFO(std::chrono::duration_cast<milliseconds>(took).count() << " ms");
  CHECK(agent.heartbeats - before >= 3);
  agent.wait_for_goodbye();
}

TEST_CASE("heartbeats keep a job alive") {
  AgentDriver agent;
  auto order = shell_order("sleep 2; echo lived");
  order.lease_ms = 1'000;
  agent.start(order);
  for (int i = 0; i < 25; ++i) {
    agent.send(FrameType::kHeartbeat);
    ::usleep(100'000);
  }
  agent.wait_for_goodbye();
  CHECK(agent.output[{0, 1}] == "lived\n");
}

TEST_CASE("what ranks leave behind is ended with the job") {
  with_each_wickedness([](const auto& features, bool one_session) {
    if (features.size() == 1 && features[0] == "stop") return;
    auto leaving = features;
    leaving.push_back("leave");
    Scene scene(leaving, one_session);
    scene.agent.wait_for_goodbye();
    for (const auto& [rank, exit] : scene.agent.exits) {
      CHECK(exit.exit_code == 0);
      CHECK(!exit.terminated_by_us);
    }
    CHECK(scene.clean_now());
    CHECK(scene.agent.goodbye->survivors == 0);
    const bool counted =
        features.empty() || features.front() != "chain";  // by what sees it in time
    if (counted) CHECK(scene.agent.goodbye->killed >= 2);
  });
}

TEST_CASE("a left process that is about to end is not killed") {
  AgentDriver agent;
  auto order = shell_order("(trap '' TERM; sleep 0.05; echo last words) & exit 0");
  order.grace_ms = 2'000;
  agent.run(order);
  CHECK(agent.output[{0, 1}] == "last words\n");
  CHECK(agent.goodbye->killed == 0);
}

TEST_CASE("an exit is reported while another process still holds the rank's output") {
  TemporaryDirectory directory;
  const std::string go_on = directory / "go-on";
  AgentDriver agent;
  auto order = shell_order("(trap '' TERM; until [ -e " + go_on +
                           " ]; do sleep 0.02; done; echo later) & echo now; exit 5");
  order.grace_ms = 2'000;
  agent.start(order);
  agent.wait_for(FrameType::kExit);
  CHECK(agent.exits.at(0).exit_code == 5);
  CHECK(agent.output[{0, 1}] == "now\n");
  REQUIRE(std::ofstream(go_on));
  agent.wait_for_goodbye();
  CHECK(agent.output[{0, 1}] == "now\nlater\n");
  CHECK(agent.output_ends.size() == 2);
}

TEST_CASE("a rank that handles SIGTERM has its grace") {
  AgentDriver agent;
  auto order = shell_order(
      "trap 'echo saving; sleep 0.2; echo saved; exit 7' TERM; echo up; "
      "while :; do sleep 0.02; done");
  agent.start(order);
  agent.wait_for_output(0, "up");
  agent.send_number(FrameType::kTerminate, 10'000);
  agent.wait_for_goodbye();
  CHECK(agent.output[{0, 1}] == "up\nsaving\nsaved\n");
  CHECK(agent.exits.at(0).exit_code == 7);
  CHECK(agent.exits.at(0).terminated_by_us);
}

TEST_CASE("a stopped rank is continued, so that it can handle SIGTERM") {
  AgentDriver agent;
  auto order = shell_order("trap 'exit 7' TERM; echo up; while :; do sleep 0.02; done");
  agent.start(order);
  agent.wait_for_output(0, "up");
  agent.send(FrameType::kSuspend);
  agent.wait_for(FrameType::kSuspend);
  agent.send_number(FrameType::kTerminate, 15'000);
  agent.wait_for_goodbye();
  CHECK(agent.exits.at(0).signal == 0);
  CHECK(agent.exits.at(0).exit_code == 7);
}

TEST_CASE("a second, shorter grace shortens the first") {
  const std::string word = unique_word("grace");
  AgentDriver agent;
  auto order = make_order({HORA_TEST_WICKED_RANK, word, "ignore-term"});
  agent.start(order);
  agent.wait_for_output(0, "hidden");
  agent.send_number(FrameType::kTerminate, 3'600'000);
  agent.send_number(FrameType::kTerminate, 0);
  agent.wait_for_goodbye();
  CHECK(agent.exits.at(0).signal == SIGKILL);
  CHECK(all_gone(order.job_id, word, milliseconds(0)));
}

TEST_CASE("one rank is ended, the other goes on") {
  AgentDriver agent;
  agent.start(shell_order("trap '' TERM; echo up; while :; do sleep 0.02; done", 2));
  agent.wait_for_output(0, "up");
  agent.wait_for_output(1, "up");
  std::string payload = u32_payload(1);
  append_u32(payload, 50);
  agent.send(FrameType::kEndRank, payload);
  agent.wait_for(FrameType::kExit);
  CHECK(agent.exits.at(1).signal == SIGKILL);
  CHECK(agent.exits.at(1).terminated_by_us);
  CHECK(agent.exits.count(0) == 0);
  agent.send_number(FrameType::kTerminate, 50);
  agent.wait_for_goodbye();
  CHECK(agent.exits.count(0) == 1);
}

TEST_CASE("one rank is sent a signal, and its end is its own") {
  AgentDriver agent;
  agent.start(shell_order("trap 'echo usr1' USR1; echo up; while :; do sleep 0.02; done", 2));
  agent.wait_for_output(0, "up");
  agent.wait_for_output(1, "up");
  const auto send = [&agent](std::uint32_t rank, std::uint32_t signal) {
    std::string payload = u32_payload(rank);
    append_u32(payload, signal);
    agent.send(FrameType::kSignalRank, payload);
  };
  send(7, SIGKILL);  // not here: nothing
  send(0, SIGUSR1);
  agent.wait_for_output(0, "usr1");
  send(1, SIGSTOP);
  send(1, SIGKILL);
  agent.wait_for(FrameType::kExit);
  CHECK(agent.exits.at(1).signal == SIGKILL);
  CHECK_FALSE(agent.exits.at(1).terminated_by_us);
  CHECK(agent.output[{1, 1}].find("usr1") == std::string::npos);
  CHECK(agent.exits.count(0) == 0);
  send(1, SIGKILL);  // has ended: nothing
  agent.send_number(FrameType::kTerminate, 50);
  agent.wait_for_goodbye();
  CHECK(agent.exits.count(0) == 1);
}

TEST_CASE("an agent stays after its goodbye until the launcher answers") {
  for (const bool answers : {true, false}) {
    AgentDriver agent({"--stay"});
    agent.run(shell_order("exit 3"));
    CHECK(agent.goodbye->stays);
    // Frames on their way when the goodbye came are not an answer.
    agent.send_number(FrameType::kOutputAck, 1);
    agent.send(FrameType::kHeartbeat);
    CHECK(!agent.reap_shim(milliseconds(200)));
    if (answers) {
      agent.send(FrameType::kLeave);
      CHECK(agent.wait_for_end());
    } else {
      agent.close();
    }
    CHECK(agent.reap_shim(milliseconds(5'000)));  // before its time limit
  }
}

TEST_CASE("a job that is ended before its start") {
  AgentDriver agent;
  agent.hello();
  SECTION("without an order") {}
  SECTION("with an order") {
    agent.send_order(make_order({"true"}));
    agent.wait_for(FrameType::kReady);
  }
  agent.send_number(FrameType::kTerminate, 1'000);
  agent.wait_for_goodbye();
  CHECK(agent.exits.empty());
  CHECK(agent.wait_for_end());
}

TEST_CASE("ranks stop and go on") {
  AgentDriver agent;
  auto order = shell_order("i=0; while :; do i=$((i+1)); echo $i; sleep 0.01; done");
  order.lease_ms = 400;
  agent.start(order);
  agent.wait_for_output(0, "3\n");
  agent.send(FrameType::kSuspend);
  agent.wait_for(FrameType::kSuspend);
  const auto take_in_for = [&agent](milliseconds time) {
    CHECK_THROWS(agent.wait_for(FrameType::kGoodbye, time));
  };
  take_in_for(milliseconds(200));  // what was on its way
  const std::string before = agent.output[{0, 1}];
  take_in_for(milliseconds(1'000));  // longer than the lease, which does not run now
  CHECK(agent.output[{0, 1}] == before);
  agent.output.clear();
  agent.send(FrameType::kResume);
  agent.wait_for_output(0, "\n");
  agent.send_number(FrameType::kTerminate, 1'000);
  agent.wait_for_goodbye();
  CHECK(agent.exits.at(0).signal == SIGTERM);
}

TEST_CASE("a suspended job ends when the launcher does") {
  Scene scene({"setsid"});
  scene.agent.send(FrameType::kSuspend);
  scene.agent.wait_for(FrameType::kSuspend);
  scene.agent.close();
  CHECK(scene.clean());
}

TEST_CASE("signals reach every rank") {
  AgentDriver agent;
  agent.start(
      shell_order("trap 'echo usr1; exit 0' USR1; echo up; while :; do sleep 0.02; done", 4));
  for (int rank = 0; rank < 4; ++rank) agent.wait_for_output(rank, "up");
  agent.send_number(FrameType::kSignal, SIGUSR1);
  agent.wait_for_goodbye();
  for (int rank = 0; rank < 4; ++rank)
    CHECK(agent.output[{rank, 1}].find("usr1") != std::string::npos);
}

TEST_CASE("a storm of signals") {
  AgentDriver agent;
  agent.start(shell_order("trap 'n=$((n+1))' USR1; echo up; sleep 0.5; exit 0", 4));
  for (int rank = 0; rank < 4; ++rank) agent.wait_for_output(rank, "up");
  for (int i = 0; i < 1'000; ++i) agent.send_number(FrameType::kSignal, SIGUSR1);
  agent.send_number(FrameType::kTerminate, 500);
  agent.wait_for_goodbye();
  CHECK(agent.exits.size() == 4);
}

TEST_CASE("an agent that is stopped while its launcher dies") {
  // The shim continues it: it need not be killed.
  const std::string word = unique_word("stopped");
  AgentDriver agent({"--shim-margin-ms", "3600000"});
  auto order = make_order({HORA_TEST_WICKED_RANK, word, "setsid", "ignore-term"});
  order.grace_ms = 100;
  agent.start(order);
  agent.wait_for_output(0, "hidden");
  ::kill(agent.agent(), SIGSTOP);
  agent.close();
  CHECK(all_gone(order.job_id, word, kTimeout));
  CHECK(agent.reap_shim());
}

TEST_CASE("an agent that is stuck while its launcher dies") {
  // Neither does a signal move it: the shim kills it, after the grace and a margin.
  const std::string word = unique_word("stuck");
  AgentDriver agent({"--shim-margin-ms", "200"});
  auto order = make_order({HORA_TEST_WICKED_RANK, word, "setsid", "ignore-term"});
  order.grace_ms = 100;
  agent.start(order);
  agent.wait_for_output(0, "hidden");
  const pid_t stuck = agent.agent();
  if (::ptrace(PTRACE_SEIZE, stuck, nullptr, nullptr) != 0) return;  // not allowed here
  REQUIRE(::ptrace(PTRACE_INTERRUPT, stuck, nullptr, nullptr) == 0);
  agent.close();
  int status = 0;  // a tracer of a process sees its end before its parent does
  for (int i = 0; i < 20'000 && !WIFSIGNALED(status); ++i) {
    if (::waitpid(stuck, &status, __WALL | WNOHANG) == 0) ::usleep(1'000);
  }
  CHECK(WIFSIGNALED(status));
  CHECK(all_gone(order.job_id, word, kTimeout));
  CHECK(agent.reap_shim());
}

TEST_CASE("a shim that is stopped") {
  Scene scene({"setsid", "double-fork", "ignore-term", "clear-env"});
  const pid_t agent = scene.agent.agent();
  stop(scene.agent.shim());
  SECTION("when the job ends") {
    scene.agent.send_number(FrameType::kTerminate, 300);
    scene.agent.wait_for_goodbye();
  }
  SECTION("when the agent is killed") { ::kill(agent, SIGKILL); }
  SECTION("when the launcher dies") { scene.agent.close(); }
  SECTION("and the agent with it, when the launcher dies") {
    stop(agent);
    scene.agent.close();
  }
  SECTION("and the agent with it, when the shim gets SIGTERM") {
    stop(agent);
    ::kill(scene.agent.shim(), SIGTERM);
    ::kill(scene.agent.shim(), SIGCONT);
  }
  CHECK(scene.clean());
  CHECK(scene.agent.reap_shim());
  CHECK(::kill(agent, 0) != 0);
}

TEST_CASE("an agent that has no descriptor left finds all the same") {
  for (const char* last : {"clear-env", "main-ends"}) {
    INFO(last);
    Scene scene({"setsid", "double-fork", "ignore-term", "leave-cgroup", last});
    const auto open = names_in("/proc/" + std::to_string(scene.agent.agent()) + "/fd").size();
    const rlimit none{open, open};
    REQUIRE(::prlimit(scene.agent.agent(), RLIMIT_NOFILE, &none, nullptr) == 0);
    scene.agent.send_number(FrameType::kTerminate, 100);
    scene.agent.wait_for_goodbye();
    CHECK(scene.clean_now());
    CHECK(scene.agent.goodbye->survivors == 0);
  }
}

TEST_CASE("a stopped agent whose shim is killed") {
  Scene scene({"setsid", "ignore-term"});
  stop(scene.agent.agent());
  ::kill(scene.agent.shim(), SIGKILL);
  CHECK(scene.agent.wait_for_end());
  CHECK(scene.clean_now());
}

TEST_CASE("a suspended job whose launcher never comes back") {
  const std::string word = unique_word("suspended");
  AgentDriver agent({"--suspended-lease-ms", "1000"});
  auto order = make_order({HORA_TEST_WICKED_RANK, word, "setsid"});
  order.grace_ms = 200;
  order.lease_ms = 400;
  agent.start(order);
  agent.wait_for_output(0, "hidden");
  agent.send(FrameType::kSuspend);
  CHECK(agent.wait_for_end());
  CHECK(all_gone(order.job_id, word, milliseconds(0)));
  REQUIRE(agent.failure.has_value());
  CHECK(agent.failure->code == "E_HOST_LOST");
  CHECK(agent.goodbye.has_value());
}

TEST_CASE("nonsense from the launcher ends the job") {
  Scene scene({"setsid"});
  SECTION("an unknown frame") { scene.agent.send(static_cast<FrameType>(200), "x"); }
  SECTION("a second order") { scene.agent.send_order(scene.order); }
  SECTION("data that belongs to nothing") { scene.agent.send(FrameType::kData, "x"); }
  SECTION("a malformed frame") { scene.agent.send(FrameType::kTerminate, "x"); }
  SECTION("a rank and no signal") { scene.agent.send_number(FrameType::kSignalRank, 0); }
  SECTION("a signal that there is not") {
    std::string payload = u32_payload(0);
    append_u32(payload, 65);
    scene.agent.send(FrameType::kSignalRank, payload);
  }
  CHECK(scene.agent.wait_for_end());
  REQUIRE(scene.agent.failure.has_value());
  CHECK(scene.agent.failure->code == "E_PROTOCOL");
  CHECK(scene.clean_now());
}

TEST_CASE("orders that cannot be") {
  auto order = make_order({"true"}, 2);
  SECTION("a rank twice") { order.ranks[1].rank = order.ranks[0].rank; }
  SECTION("a negative rank") { order.ranks[1].rank = -1; }
  SECTION("no lease") { order.lease_ms = 0; }
  SECTION("a negative grace") { order.grace_ms = -1; }
  SECTION("no window") { order.output_window_bytes = 0; }
  SECTION("no command") { order.argv.clear(); }
  AgentDriver agent;
  agent.send_order(order);
  CHECK(agent.wait_for_end());
  REQUIRE(agent.failure.has_value());
  CHECK(agent.failure->code == "E_PROTOCOL");
}

TEST_CASE("the job's cgroup goes with it") {
  // Where the machine allows none there is nothing to see, and nothing left either.
  AgentDriver agent;
  agent.start(shell_order("grep ^0:: /proc/self/cgroup; echo up; exec sleep 1000"));
  agent.wait_for_output(0, "up");
  const std::string text = agent.output[{0, 1}];
  const std::size_t name = text.find("/hora-");
  SECTION("the job ends") { agent.send_number(FrameType::kTerminate, 1'000); }
  SECTION("the agent is killed") { ::kill(agent.agent(), SIGKILL); }
  SECTION("the shim is killed") { ::kill(agent.shim(), SIGKILL); }
  CHECK(agent.wait_for_end());
  CHECK(agent.reap_shim());
  if (name == std::string::npos) return;
  const std::string cgroup = text.substr(name, text.find('\n', name) - name);
  std::vector<pid_t> members;
  const auto all = list_processes().value();
  for (const ProcessEntry& process : all) {
    const std::string own = content_of("/proc/" + std::to_string(process.pid) + "/cgroup");
    if (own.find(cgroup) != std::string::npos) members.push_back(process.pid);
  }
  CHECK(members.empty());
  for (const char* mount : {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"}) {
    CHECK(!std::filesystem::exists(mount + cgroup));
  }
}
