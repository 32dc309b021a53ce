// SPDX-License-Identifier: Apache-2.0
// A fleet with the agent that was built with the tests, on this machine: no network, no root.
#include "launcher/fleet/fleet.h"

#include <signal.h>

#include <thread>

#include "launcher/machine/host_facts.h"
#include "rendezvous/base/machine.h"
#include "tests/support/agent_driver.h"
#include "tests/support/catch.h"

using namespace hora;
using namespace hora::launcher;
using namespace std::chrono_literals;

namespace {

struct Agents {
  std::unique_ptr<os::EventLoop> loop = std::move(*os::EventLoop::create());
  JobSpec spec;
  Installation installation;
  std::vector<std::pair<int, FleetEvent>> events;
  std::function<void(int host, const FleetEvent& event)> on_event;
  std::unique_ptr<Fleet> fleet;
  bool timed_out = false;

  explicit Agents(std::chrono::milliseconds lease = 10s) {
    spec.runtime = RuntimeKind::kHost;
    installation.builds.resize(1);
    installation.builds[0].machine = own_machine();
    installation.builds[0].agent_path = test::agent_path();
    fleet = std::make_unique<Fleet>(*loop, spec, installation,
                                    Fleet::Options{.loads_runtime = true, .lease = lease},
                                    [this](int host, const FleetEvent& event) {
                                      events.emplace_back(host, event);
                                      if (on_event) on_event(host, event);
                                    });
  }

  int connect(const std::string& name) {
    const int host = fleet->add(Host{name, "", 1}, true);
    REQUIRE_FALSE(fleet->connect(host, Clock::now() + 20s));
    return host;
  }

  void run() {
    loop->call_after(30s, [this] {
      timed_out = true;
      loop->stop();
    });
    REQUIRE(loop->run());
    REQUIRE_FALSE(timed_out);
  }

  template <typename T>
  std::vector<int> hosts_with() const {
    std::vector<int> hosts;
    for (const auto& [host, event] : events) {
      if (std::holds_alternative<T>(event)) hosts.push_back(host);
    }
    return hosts;
  }
};

}  // namespace

TEST_CASE("two agents greet, run a rank each, and leave") {
  Agents agents;
  int left = 0;
  agents.on_event = [&](int host, const FleetEvent& event) {
    if (std::holds_alternative<AgentGreeted>(event)) {
      agents.fleet->send(host, test::shell_order("exit 3"));
    } else if (std::holds_alternative<AgentReady>(event)) {
      agents.fleet->send(host, StartRanks{});
    } else if (std::holds_alternative<AgentLeft>(event) && ++left == 2) {
      agents.loop->stop();
    }
  };
  agents.connect("a");
  agents.connect("b");
  CHECK(agents.fleet->size() == 2);
  CHECK(agents.fleet->name(1) == "b");
  CHECK_FALSE(agents.fleet->hello(0));
  agents.run();
  CHECK(agents.hosts_with<AgentGreeted>().size() == 2);
  CHECK(agents.hosts_with<AgentLost>().empty());
  for (const auto& [host, event] : agents.events) {
    if (const auto* exit = std::get_if<RankExit>(&event)) CHECK(exit->exit_code == 3);
  }
  CHECK(agents.hosts_with<RankExit>().size() == 2);
  CHECK(agents.fleet->network(0).name == "a");
  CHECK_FALSE(agents.fleet->is_remote(0));
}

TEST_CASE("no rank's end is later than its report, however late its agent's greeting is read") {
  Agents agents;
  agents.on_event = [&](int host, const FleetEvent& event) {
    if (std::holds_alternative<AgentGreeted>(event)) {
      agents.fleet->send(host, test::shell_order("exit 3"));
    } else if (std::holds_alternative<AgentReady>(event)) {
      agents.fleet->send(host, StartRanks{});
    } else if (const auto* exit = std::get_if<RankExit>(&event)) {
      const std::chrono::nanoseconds ended(exit->clock_ns);
      CHECK(ended + agents.fleet->clock_offset(host) <= std::chrono::nanoseconds(wall_clock_ns()));
    } else if (std::holds_alternative<AgentLeft>(event)) {
      agents.loop->stop();
    }
  };
  agents.connect("a");
  std::this_thread::sleep_for(200ms);  // the greeting lies there, unread
  agents.run();
  CHECK(agents.hosts_with<RankExit>().size() == 1);
}

TEST_CASE("a program that is not an agent is a failure of its host") {
  Agents agents;
  agents.installation.builds[0].agent_path = "/bin/true";
  agents.fleet = std::make_unique<Fleet>(*agents.loop, agents.spec, agents.installation,
                                         Fleet::Options{.loads_runtime = true},
                                         [&](int host, FleetEvent event) {
                                           if (std::holds_alternative<Failure>(event))
                                             agents.loop->stop();
                                           agents.events.emplace_back(host, std::move(event));
                                         });
  agents.connect("a");
  agents.fleet->begin_heartbeats();
  agents.run();
  const auto* failure = std::get_if<Failure>(&agents.events.back().second);
  REQUIRE(failure != nullptr);
  CHECK(failure->code == "E_AGENT");
  CHECK(failure->message.find("no agent answered") != std::string::npos);
}

TEST_CASE("an agent that dies is lost, once") {
  Agents agents;
  agents.on_event = [&](int host, const FleetEvent& event) {
    if (std::holds_alternative<AgentGreeted>(event)) {
      ::kill(static_cast<pid_t>(agents.fleet->hello(host)->pid), SIGKILL);
    } else if (std::holds_alternative<AgentLost>(event)) {
      agents.loop->call_after(50ms, [&] { agents.loop->stop(); });
    }
  };
  agents.connect("a");
  agents.fleet->begin_heartbeats();
  agents.run();
  CHECK(agents.hosts_with<AgentLost>() == std::vector<int>{0});
  CHECK(agents.hosts_with<AgentLeft>().empty());
}

TEST_CASE("an agent that is stopped is lost after the lease") {
  Agents agents(400ms);
  std::string detail;
  pid_t agent = 0;
  agents.on_event = [&](int host, const FleetEvent& event) {
    if (std::holds_alternative<AgentGreeted>(event)) {
      agent = static_cast<pid_t>(agents.fleet->hello(host)->pid);
      ::kill(agent, SIGSTOP);
    } else if (const auto* lost = std::get_if<AgentLost>(&event)) {
      detail = lost->detail;
      agents.loop->stop();
    }
  };
  agents.connect("a");
  agents.fleet->begin_heartbeats();
  agents.run();
  ::kill(agent, SIGCONT);
  CHECK(detail.find("no sign of life") == 0);
  CHECK_FALSE(agents.fleet->is_open(0));
}

TEST_CASE("hosts that are not needed are forgotten") {
  Agents agents;
  agents.on_event = [&](int, const FleetEvent& event) {
    if (!std::holds_alternative<AgentGreeted>(event)) return;
    if (agents.hosts_with<AgentGreeted>().size() < 2) return;
    agents.fleet->keep_first(1);
    agents.loop->call_after(50ms, [&] { agents.loop->stop(); });
  };
  agents.connect("a");
  agents.connect("b");
  agents.run();
  CHECK(agents.fleet->size() == 1);
  CHECK(agents.hosts_with<AgentLost>().empty());
}

TEST_CASE("an agent for a processor without a build is a failure of its host") {
  Agents agents;
  agents.installation.builds[0].machine = "vax";  // which the agent is not for
  agents.on_event = [&](int, const FleetEvent& event) {
    if (std::holds_alternative<Failure>(event)) agents.loop->stop();
  };
  agents.connect("a");
  agents.run();
  CHECK(agents.hosts_with<AgentGreeted>().empty());
  const auto* failure = std::get_if<Failure>(&agents.events.back().second);
  REQUIRE(failure != nullptr);
  CHECK(failure->code == "E_PROCESSOR");
  CHECK(failure->message.find(std::string(own_machine())) != std::string::npos);
  CHECK(failure->message.find("for vax only") != std::string::npos);
}

TEST_CASE("an agent that cannot be started is a failure of its host") {
  Agents agents;
  agents.installation.builds[0].agent_path = "/nonexistent/hora-agent";
  Fleet fleet(*agents.loop, agents.spec, agents.installation, {}, [&](int host, FleetEvent event) {
    agents.events.emplace_back(host, std::move(event));
    agents.loop->stop();
  });
  const int host = fleet.add(Host{"a", "", 1}, true);
  const auto failed = fleet.connect(host, Clock::now() + 20s);
  if (failed) {
    CHECK_FALSE(failed->message.empty());
    return;
  }
  agents.run();
  CHECK_FALSE(agents.hosts_with<Failure>().empty());
}
