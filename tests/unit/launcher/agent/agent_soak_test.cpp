// SPDX-License-Identifier: Apache-2.0
// Death at any moment: the launcher, the agent or the shim goes while a job is being prepared,
// started, run or ended. Nothing may be left, however the dice fall. HORA_TEST_ROUNDS sets how
// often; the seed is printed with a failure.
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <random>
#include <stdexcept>
#include <thread>

#include "launcher/process/process_table.h"
#include "tests/support/agent_driver.h"
#include "tests/support/catch.h"
#include "tests/support/rounds.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/launcher/agent/packing.h"

using namespace hora::launcher;
using namespace hora::test;
using std::chrono::milliseconds;

namespace {

// The shim's child, if it has one already.
pid_t agent_of(pid_t shim) {
  const auto all = list_processes().value();
  for (const ProcessEntry& entry : all) {
    if (entry.parent == shim) return entry.pid;
  }
  return 0;
}

}  // namespace

TEST_CASE("a process dies at a random moment") {
  const TemporaryDirectory temporary;  // where the agents make their jobs' folders
  ::setenv("TMPDIR", temporary.path().c_str(), 1);
  std::mt19937 random(std::random_device{}());
  for (int round = 0; round < rounds(300); ++round) {
    const unsigned seed = random();
    INFO("round " << round << ", seed " << seed);
    std::mt19937 dice(seed);
    const std::string word = unique_word("soak");
    auto order =
        make_order({HORA_TEST_WICKED_RANK, word, "setsid", "double-fork", "ignore-term"}, 6);
    order.grace_ms = 50;
    order.ship_directory = dice() % 2 == 0;
    {
      AgentDriver agent;
      const pid_t shim = agent.shim();
      const auto victim = dice() % 3;
      const std::chrono::microseconds delay(dice() % 12'000);
      std::thread killer([&] {
        std::this_thread::sleep_for(delay);  // the moment is the test's input, not a wait
        if (victim == 0) {
          ::shutdown(agent.stream(), SHUT_RDWR);
        } else {
          const pid_t pid = victim == 1 ? 0 : agent_of(shim);
          ::kill(pid != 0 ? pid : shim, SIGKILL);
        }
      });
      try {
        agent.start(order);
        agent.wait_for_end();
      } catch (const std::runtime_error&) {
        // The stream ended early, as it should.
      }
      killer.join();
      agent.close();
      REQUIRE(agent.reap_shim());
    }
    REQUIRE(all_gone(order.job_id, word, milliseconds(20'000)));
  }
  CHECK(names_in(temporary.path()).empty());
}

TEST_CASE("quick jobs of many sizes") {
  for (int round = 0; round < rounds(300); ++round) {
    for (int ranks : {1, 8, 32}) {
      AgentDriver agent;
      agent.run(make_order({"/bin/true"}, ranks));
      REQUIRE(agent.exits.size() == static_cast<std::size_t>(ranks));
      REQUIRE(agent.goodbye->killed == 0);
      REQUIRE(agent.wait_for_end());
      REQUIRE(agent.reap_shim());
    }
  }
}
