// SPDX-License-Identifier: Apache-2.0
// Probes: only the agent that holds the nonce counts as reached.
#include "launcher/failures/failure_code.h"
#include "launcher/transports/transport.h"
#include "rendezvous/net/socket.h"
#include "tests/support/agent_driver.h"
#include "tests/support/catch.h"
#include "tests/unit/launcher/agent/packing.h"

using namespace hora::launcher;
using namespace hora::test;

namespace {

ProbeResult probe(AgentDriver& agent, const Probe& request) {
  agent.send(FrameType::kProbe, encode(request));
  return decode<ProbeResult>(agent.wait_for(FrameType::kProbeResult).payload).value();
}

}  // namespace

TEST_CASE("an agent is found by its nonce") {
  AgentDriver first({"--probe"});
  AgentDriver second({"--probe"});
  const Hello target = first.hello();
  const Hello other = second.hello();
  REQUIRE(target.probe_port > 0);
  CHECK(target.probe_nonce.size() == 32);
  CHECK(target.probe_nonce != other.probe_nonce);
  Probe request;
  request.targets = {
      {0, {"127.0.0.1", "::1", "not an address"}, target.probe_port, target.probe_nonce},
      {1, {"127.0.0.1"}, other.probe_port, target.probe_nonce},
      {2, {"127.0.0.1"}, 1, target.probe_nonce}};
  const ProbeResult result = probe(second, request);
  REQUIRE(result.answers.size() == 5);
  CHECK(result.answers[0].reached);
  CHECK(result.answers[0].local_address == "127.0.0.1");
  CHECK(result.answers[0].address == "127.0.0.1");
  CHECK(!result.answers[2].reached);
  CHECK(!result.answers[3].reached);
  CHECK(result.answers[3].host_index == 1);
  CHECK(result.answers[3].error == "another host answers there");
  CHECK(!result.answers[4].reached);
  CHECK(result.answers[4].error == "Connection refused");
  // A second round works as the first.
  CHECK(probe(second, request).answers[0].reached);
  CHECK(probe(second, Probe{}).answers.empty());
}

TEST_CASE("an address that does not answer ends with the deadline") {
  const auto silent = hora::net::listen_tcp(
      {hora::parse_ip_address("127.0.0.1").value(), 0});  // accepts, says nothing
  REQUIRE(silent.has_value());
  AgentDriver agent({"--probe"});
  Probe request;
  request.timeout_ms = 200;
  request.targets = {{0, {"127.0.0.1"}, hora::net::local_endpoint(silent->get())->port, "nonce"}};
  const ProbeResult result = probe(agent, request);
  REQUIRE(result.answers.size() == 1);
  CHECK(!result.answers[0].reached);
  CHECK(result.answers[0].error == "no answer in time");
}

TEST_CASE("many addresses at a time") {
  AgentDriver agent({"--probe"});
  const Hello hello = agent.hello();
  Probe request;
  request.targets = {
      {0, std::vector<std::string>(500, "127.0.0.1"), hello.probe_port, hello.probe_nonce}};
  request.timeout_ms = 20'000;
  const ProbeResult result = probe(agent, request);
  REQUIRE(result.answers.size() == 500);
  for (const ProbeAnswer& answer : result.answers) CHECK(answer.reached);
}

TEST_CASE("no listener without --probe") {
  AgentDriver agent;
  CHECK(agent.hello().probe_port == 0);
}

TEST_CASE("the agent knows its own hash when asked") {
  AgentDriver agent({"--report-sha"});
  CHECK(agent.hello().agent_sha256 == sha256_hex(content_of(agent_path())));
  AgentDriver other;
  CHECK(other.hello().agent_sha256.empty());
}

TEST_CASE("the reserved port can be listened on by a rank") {
  AgentDriver agent;
  const int port = agent.hello().free_port;
  const auto listener = hora::net::listen_tcp(
      {hora::parse_ip_address("::").value(), static_cast<std::uint16_t>(port)});
  CHECK(listener.has_value());
}

TEST_CASE("the local transport starts an agent behind a stream") {
  int stages = 0;
  const auto transport = make_local_transport([&](int host, Stage stage, std::string_view) {
    CHECK(host == 3);
    CHECK(stage == Stage::kAgent);
    ++stages;
  });
  AgentImage image;
  image.builds = {{"", agent_path(), "", "0123456789abcdef"}};
  image.local_bundle = "/usr";
  image.arguments = {"--probe"};
  Host host;
  host.name = "localhost";
  auto stream = transport->start(host, 3, image, std::chrono::steady_clock::now());
  REQUIRE(stream.has_value());
  CHECK(stages == 1);
  AgentDriver agent(std::move(*stream));
  const Hello hello = agent.hello();
  CHECK(hello.missing_parts.empty());
  CHECK(hello.probe_port > 0);
  agent.run(make_order({"echo", "x"}));
  CHECK(agent.output[{0, 1}] == "x\n");
  CHECK(agent.wait_for_end());

  image.builds[0].path = "/no/such/agent";
  const auto missing = transport->start(host, 3, image, std::chrono::steady_clock::now());
  REQUIRE(!missing.has_value());
  CHECK(missing.error().message == "executing the agent /no/such/agent: No such file or directory");
}
