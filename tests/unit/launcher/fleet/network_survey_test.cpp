// SPDX-License-Identifier: Apache-2.0
#include "launcher/fleet/network_survey.h"

#include "tests/support/catch.h"

using namespace hora::launcher;

namespace {

NetworkSurvey::Member member(int host, const std::string& address) {
  NetworkSurvey::Member out;
  out.host = host;
  out.network.name = "node" + std::to_string(host);
  out.network.boot_id = "boot" + std::to_string(host);
  InterfaceInfo nic;
  nic.name = "eth0";
  nic.address = address;
  nic.prefix_length = 24;
  nic.up = true;
  out.network.interfaces = {nic};
  out.network.reached_at = address;
  out.network.launcher_seen_as = "10.0.0.9";
  out.network.probe_port = 4000 + host;
  out.network.probe_nonce = "x";
  return out;
}

struct Survey {
  std::vector<std::pair<int, Probe>> asked;
  std::vector<NetworkSurvey::Choice> chosen;
  NetworkSurvey survey;

  explicit Survey(std::vector<NetworkSurvey::Member> members)
      : survey(std::move(members), own(), {},
               {[this](int host, const Probe& probe) { asked.emplace_back(host, probe); },
                [this](NetworkSurvey::Choice choice) { chosen.push_back(std::move(choice)); }}) {}

  static HostNetwork own() {
    HostNetwork network = member(9, "10.0.0.9").network;
    network.name = "the launcher's machine";
    return network;
  }

  // Every address answers.
  ProbeResult answer_of(int host) const {
    ProbeResult result;
    for (const auto& [asked_host, probe] : asked) {
      if (asked_host != host) continue;
      for (const ProbeTarget& target : probe.targets) {
        for (const std::string& address : target.addresses) {
          ProbeAnswer answer;
          answer.host_index = target.host_index;
          answer.address = address;
          answer.reached = true;
          result.answers.push_back(answer);
        }
      }
    }
    return result;
  }
};

}  // namespace

TEST_CASE("the network is chosen when every host has answered") {
  Survey four({member(4, "10.0.0.4"), member(7, "10.0.0.7")});
  four.survey.begin();
  REQUIRE(four.asked.size() == 2);
  CHECK(four.asked[0].first == 4);
  CHECK(four.asked[1].first == 7);
  four.survey.on_result(7, four.answer_of(7));
  CHECK(four.chosen.empty());
  four.survey.on_result(7, {});  // twice
  four.survey.on_result(5, {});  // not asked
  CHECK(four.chosen.empty());
  four.survey.on_result(4, four.answer_of(4));
  REQUIRE(four.chosen.size() == 1);
  const auto& network = std::get<NetworkChoice>(four.chosen[0]);
  REQUIRE(network.hosts.size() == 2);
  CHECK(network.hosts[0].address == "10.0.0.4");
  CHECK(network.hosts[1].interface == "eth0");
}

TEST_CASE("a host that is lost is not waited for") {
  Survey two({member(0, "10.0.0.4"), member(1, "10.0.0.7")});
  two.survey.begin();
  two.survey.on_result(0, two.answer_of(0));
  CHECK(two.chosen.empty());
  two.survey.on_lost(1);
  CHECK(two.chosen.size() == 1);
  two.survey.on_lost(1);
  two.survey.on_lost(0);
  CHECK(two.chosen.size() == 1);
}

TEST_CASE("with one host there is nothing to try") {
  Survey one({member(0, "10.0.0.4")});
  one.survey.begin();
  CHECK(one.asked.empty());
  CHECK(one.chosen.size() == 1);
}
