// SPDX-License-Identifier: Apache-2.0
#include "launcher/network/network_choice.h"

#include <random>

#include "launcher/network/host_addresses.h"
#include "tests/support/catch.h"

namespace hora::launcher {
namespace {

InterfaceInfo nic(const std::string& name, const std::string& address, int prefix, int speed = 0) {
  InterfaceInfo info;
  info.name = name;
  info.address = address;
  info.prefix_length = prefix;
  info.up = true;
  info.loopback = name == "lo";
  info.virtual_bridge = name.substr(0, 6) == "docker" || name.substr(0, 2) == "br";
  info.speed_mbps = speed;
  return info;
}

HostNetwork host(const std::string& name, std::vector<InterfaceInfo> interfaces,
                 const std::string& reached_at = "", const std::string& seen_as = "") {
  HostNetwork out;
  out.name = name;
  out.boot_id = "boot-" + name;
  out.interfaces = std::move(interfaces);
  out.interfaces.insert(out.interfaces.begin(), nic("lo", "127.0.0.1", 8));
  out.reached_at = reached_at;
  out.launcher_seen_as = seen_as;
  out.probe_port = 4000;
  out.probe_nonce = "nonce-" + name;
  return out;
}

const HostNetwork kLauncher = host("launcher", {nic("eth0", "10.0.1.100", 24)});

NetworkChoice choice_of(const std::vector<HostNetwork>& hosts,
                        const std::vector<std::string>& wanted = {},
                        const std::vector<ProbeResult>& answers = {},
                        const HostNetwork& launcher = kLauncher) {
  auto choice = choose_network(hosts, launcher, wanted, answers);
  if (auto* failure = std::get_if<Failure>(&choice)) FAIL(failure->message);
  return std::get<NetworkChoice>(choice);
}

std::string failure_of(const std::vector<HostNetwork>& hosts,
                       const std::vector<std::string>& wanted = {},
                       const std::vector<ProbeResult>& answers = {},
                       const HostNetwork& launcher = kLauncher) {
  auto choice = choose_network(hosts, launcher, wanted, answers);
  REQUIRE(std::holds_alternative<Failure>(choice));
  const Failure& failure = std::get<Failure>(choice);
  CHECK(failure.code == "E_NETWORK");
  CHECK_FALSE(failure.advice.empty());
  return failure.message;
}

ProbeAnswer answer(int host_index, const std::string& address, bool reached,
                   const std::string& error = "") {
  ProbeAnswer out;
  out.host_index = host_index;
  out.address = address;
  out.reached = reached;
  out.error = error;
  return out;
}

TEST_CASE("Ranks on one machine use loopback") {
  HostNetwork local = kLauncher;
  local.name = "localhost";
  const auto choice = choice_of({local});
  CHECK(choice.hosts[0].interface == "lo");
  CHECK(choice.hosts[0].address == "127.0.0.1");
  CHECK(choice.hosts[0].rendezvous_address == "127.0.0.1");
  CHECK(choice.listen_addresses == std::vector<std::string>{"127.0.0.1"});
  // Two names of one machine are one machine.
  HostNetwork alias = local;
  alias.name = "alias";
  CHECK(choice_of({local, alias}).hosts[1].interface == "lo");
  CHECK(candidate_probes({local, alias}, {})[0].targets.empty());
}

TEST_CASE("One remote machine: loopback for the ranks, a real address for the launcher") {
  const auto remote = host("a", {nic("eth0", "10.0.1.1", 24)}, "10.0.1.1", "10.0.1.100");
  const auto choice = choice_of({remote});
  CHECK(choice.hosts[0].interface == "lo");
  CHECK(choice.hosts[0].rendezvous_address == "10.0.1.100");
}

TEST_CASE("Where other hosts may come later, ranks on one machine keep off loopback") {
  const auto may_come = [](const HostNetwork& one, const std::vector<std::string>& wanted = {}) {
    return std::get<NetworkChoice>(choose_network({one}, kLauncher, wanted, {{}}, Hosts::kMayCome))
        .hosts[0];
  };
  const auto remote = host("a", {nic("eth0", "10.0.1.1", 24)}, "10.0.1.1", "10.0.1.100");
  CHECK(may_come(remote).address == "10.0.1.1");
  CHECK(may_come(remote).rendezvous_address == "10.0.1.100");
  CHECK(may_come(kLauncher).interface == "eth0");
  // Without another interface, and where the user says so, it has to do.
  HostNetwork alone = kLauncher;
  alone.interfaces = {nic("lo", "127.0.0.1", 8)};
  alone.interfaces[0].loopback = true;
  CHECK(may_come(alone).interface == "lo");
  CHECK(may_come(kLauncher, {"lo"}).interface == "lo");
}

TEST_CASE("The user's interface is used on one machine, too") {
  HostNetwork local = kLauncher;
  const auto choice = choice_of({local}, {"eth0"});
  CHECK(choice.hosts[0].address == "10.0.1.100");
  CHECK(choice.hosts[0].rendezvous_address == "10.0.1.100");
  CHECK(choice_of({local}, {"lo"}).hosts[0].interface == "lo");
}

TEST_CASE("Hosts meet on the network that they share, whatever the interfaces are called") {
  const auto choice = choice_of({host("a", {nic("eth0", "10.0.1.1", 24)}, "10.0.1.1", "10.0.1.100"),
                                 host("b", {nic("ens3", "10.0.1.2", 24)})});
  CHECK(choice.hosts[0].interface == "eth0");
  CHECK(choice.hosts[1].interface == "ens3");
  CHECK(choice.hosts[1].interfaces == std::vector<std::string>{"ens3"});
  CHECK(choice.hosts[0].reason == "network 10.0.1.0/24, by which the hosts were reached");
  CHECK(choice.listen_addresses == std::vector<std::string>{"10.0.1.100"});
}

TEST_CASE("An interface whose name begins another one's is marked") {
  const auto first = [](std::vector<InterfaceInfo> interfaces, std::vector<std::string> wanted) {
    return choice_of({host("a", std::move(interfaces), "10.0.1.1"),
                      host("b", {nic("eth1", "10.0.1.2", 24)}, "10.0.1.2")},
                     wanted)
        .hosts[0];
  };
  const auto eth1 = nic("eth1", "10.0.1.1", 24);
  CHECK(first({eth1, nic("eth10", "10.9.1.1", 24)}, {}).is_prefix);
  CHECK(first({nic("eth1.5", "10.9.5.1", 24), eth1}, {}).is_prefix);
  CHECK_FALSE(first({eth1, nic("eth2", "10.9.2.1", 24)}, {}).is_prefix);
  CHECK_FALSE(first({eth1, nic("eth10", "10.0.1.3", 24)}, {"eth1", "eth10"}).is_prefix);
}

TEST_CASE("docker0 with one address everywhere is never chosen") {
  const std::vector<HostNetwork> hosts{
      host("a", {nic("docker0", "172.17.0.1", 16), nic("eth0", "10.0.1.1", 24)}),
      host("b", {nic("docker0", "172.17.0.1", 16), nic("eth0", "10.0.1.2", 24)})};
  CHECK(choice_of(hosts).hosts[0].interface == "eth0");
  CHECK(failure_of(hosts, {"docker0"}).find("the same address as on b") != std::string::npos);
  for (const Probe& probe : candidate_probes(hosts, {})) {
    for (const ProbeTarget& target : probe.targets) {
      CHECK(target.addresses.size() == 1);
      CHECK(target.addresses[0].substr(0, 7) == "10.0.1.");
    }
  }
}

TEST_CASE("Of two networks: the user's, then the one of the connection, then the faster") {
  const auto make = [](const std::string& name, const std::string& number, bool by_slow) {
    return host(
        name,
        {nic("eth0", "10.0.1." + number, 24, 1000), nic("eth1", "10.0.2." + number, 24, 25000)},
        by_slow ? "10.0.1." + number : "");
  };
  const std::vector<HostNetwork> reached{make("a", "1", true), make("b", "2", true)};
  const std::vector<HostNetwork> unknown{make("a", "1", false), make("b", "2", false)};
  HostNetwork launcher = host("launcher", {nic("e", "10.0.1.9", 24), nic("f", "10.0.2.9", 24)});
  CHECK(choice_of(reached, {}, {}, launcher).hosts[0].interface == "eth0");
  CHECK(choice_of(unknown, {}, {}, launcher).hosts[0].interface == "eth1");
  CHECK(choice_of(reached, {"eth1"}, {}, launcher).hosts[0].interface == "eth1");
  CHECK(choice_of(reached, {"10.0.2.0/24"}, {}, launcher).hosts[1].address == "10.0.2.2");
  const auto both = choice_of(reached, {"eth1", "eth0"}, {}, launcher);
  CHECK(both.hosts[0].interfaces == std::vector<std::string>{"eth1", "eth0"});
  CHECK(both.hosts[0].reason.find("named by --network-interfaces") != std::string::npos);
  CHECK(both.hosts[0].rendezvous_address == "10.0.2.9");
}

TEST_CASE("A network that a probe found closed is left out") {
  const std::vector<HostNetwork> hosts{
      host("a", {nic("eth0", "10.0.1.1", 24), nic("eth1", "10.0.2.1", 24)}, "10.0.1.1"),
      host("b", {nic("eth0", "10.0.1.2", 24), nic("eth1", "10.0.2.2", 24)}, "10.0.1.2")};
  HostNetwork launcher = host("l", {nic("e", "10.0.2.9", 24)});
  std::vector<ProbeResult> answers(2);
  answers[0].answers = {answer(1, "10.0.1.2", false, "Connection refused"),
                        answer(1, "10.0.2.2", true)};
  answers[1].answers = {answer(0, "10.0.1.1", true), answer(0, "10.0.2.1", true)};
  CHECK(choice_of(hosts, {}, answers, launcher).hosts[0].interface == "eth1");
  answers[0].answers[1] = answer(1, "10.0.2.2", false);
  const std::string text = failure_of(hosts, {}, answers, launcher);
  CHECK(text.find("  b:\n") != std::string::npos);
  CHECK(text.find("eth0 10.0.1.2/24 (a cannot reach it: Connection refused)") != std::string::npos);
  CHECK(text.find("eth1 10.0.2.2/24 (a cannot reach it: no answer)") != std::string::npos);
  CHECK(text.find("lo 127.0.0.1/8 (loopback)") != std::string::npos);
}

TEST_CASE("Without a common network the addresses that were reached are used") {
  // As in a cloud that gives every machine an address of its own.
  const std::vector<HostNetwork> hosts{
      host("a", {nic("eth0", "10.0.1.1", 32)}, "10.0.1.1", "10.0.1.100"),
      host("b", {nic("eth0", "10.0.7.2", 32)}, "10.0.7.2", "10.0.1.100")};
  std::vector<ProbeResult> answers(2);
  answers[0].answers = {answer(1, "10.0.7.2", true)};
  answers[1].answers = {answer(0, "10.0.1.1", true)};
  const auto choice = choice_of(hosts, {}, answers);
  CHECK(choice.hosts[1].address == "10.0.7.2");
  CHECK(choice.hosts[1].reason.find("no common network") == 0);
  answers[1].answers = {answer(0, "10.0.1.1", false, "No route to host")};
  CHECK(failure_of(hosts, {}, answers).find("b cannot reach it: No route to host") !=
        std::string::npos);
}

TEST_CASE("What is down or link-local is not used") {
  auto down = nic("eth0", "10.0.1.1", 24);
  down.up = false;
  const std::vector<HostNetwork> hosts{
      host("a", {down, nic("eth1", "169.254.7.1", 16)}),
      host("b", {nic("eth0", "10.0.1.2", 24), nic("eth1", "169.254.7.2", 16)})};
  const std::string text = failure_of(hosts);
  CHECK(text.find("eth0 10.0.1.1/24 (down)") != std::string::npos);
  CHECK(text.find("(link-local)") != std::string::npos);
  // Named by the user, link-local is fine; down is not.
  HostNetwork launcher = host("l", {nic("e", "169.254.7.9", 16)});
  CHECK(choice_of(hosts, {"eth1"}, {}, launcher).hosts[0].address == "169.254.7.1");
  CHECK(failure_of(hosts, {"eth0"}).find("eth0 names nothing usable on a") != std::string::npos);
}

TEST_CASE("A machine without any address has its loopback interface down") {
  HostNetwork alone;
  alone.name = "a";
  const auto choice = choose_network({alone}, alone, {}, {});
  REQUIRE(std::holds_alternative<Failure>(choice));
  CHECK(std::get<Failure>(choice).message.find("not even the loopback interface is up") !=
        std::string::npos);
  CHECK(std::get<Failure>(choice).advice.find("ip link set lo up") != std::string::npos);
}

TEST_CASE("IPv4 goes before IPv6, and IPv6 alone works") {
  const std::vector<HostNetwork> both{
      host("a", {nic("e", "fd00::1", 64), nic("e", "10.0.1.1", 24)}, "fd00::1"),
      host("b", {nic("e", "fd00::2", 64), nic("e", "10.0.1.2", 24)}, "fd00::2")};
  CHECK(choice_of(both).hosts[0].address == "10.0.1.1");
  const std::vector<HostNetwork> v6{host("a", {nic("e", "fd00::1", 64)}, "", "fd00::9"),
                                    host("b", {nic("e", "fd00::2", 64)}, "", "fd00::9")};
  HostNetwork launcher = host("l", {nic("e", "fd00::9", 64)});
  CHECK(choice_of(v6, {}, {}, launcher).hosts[1].address == "fd00::2");
}

TEST_CASE("Ranks on the launcher's host and elsewhere share one rendezvous address") {
  HostNetwork local = kLauncher;
  const auto choice =
      choice_of({local, host("b", {nic("eth0", "10.0.1.2", 24)}, "10.0.1.2", "10.0.1.100")});
  CHECK(choice.listen_addresses == std::vector<std::string>{"10.0.1.100"});
  CHECK(choice.hosts[0].rendezvous_address == "10.0.1.100");
}

TEST_CASE("A launcher behind address translation is reported") {
  const std::vector<HostNetwork> hosts{
      host("a", {nic("eth0", "10.5.1.1", 24)}, "203.0.113.1", "198.51.100.7"),
      host("b", {nic("eth0", "10.5.1.2", 24)}, "203.0.113.2", "198.51.100.7")};
  const std::string text = failure_of(hosts);
  CHECK(text.find("a has no known route to the launcher's machine: it sees the launcher as "
                  "198.51.100.7") == 0);
}

TEST_CASE("Where there is no way to the launcher, the first host relays") {
  const std::vector<HostNetwork> hosts{
      host("a", {nic("eth0", "10.5.1.1", 24)}, "203.0.113.1", "198.51.100.7"),
      host("b", {nic("eth0", "10.5.1.2", 24)}, "203.0.113.2", "198.51.100.7")};
  const auto choice = std::get<NetworkChoice>(
      choose_network(hosts, kLauncher, {}, {}, Hosts::kFixed, WayBack::kOrRelay));
  CHECK(choice.relayed);
  CHECK(choice.listen_addresses == std::vector<std::string>{"127.0.0.1"});
  CHECK(choice.hosts[0].rendezvous_address == "10.5.1.1");
  CHECK(choice.hosts[1].rendezvous_address == "10.5.1.1");
  CHECK(choice.hosts[1].address == "10.5.1.2");
}

TEST_CASE("A relay is for hosts that need one, or for those whose addresses prove nothing") {
  const std::vector<HostNetwork> hosts{host("a", {nic("eth0", "10.0.1.1", 24)}, "10.0.1.1"),
                                       host("b", {nic("eth0", "10.0.1.2", 24)}, "10.0.1.2")};
  const auto choice = [&](WayBack way_back) {
    return std::get<NetworkChoice>(
        choose_network(hosts, kLauncher, {}, {}, Hosts::kFixed, way_back));
  };
  CHECK_FALSE(choice(WayBack::kOrRelay).relayed);
  CHECK(choice(WayBack::kRelay).relayed);
}

TEST_CASE("One host that does not say how it sees the launcher: a common network is used") {
  const std::vector<HostNetwork> alone{host("pod", {nic("eth0", "10.0.1.7", 24)})};
  const auto choice = choice_of(alone);
  CHECK(choice.hosts[0].address == "127.0.0.1");
  CHECK(choice.hosts[0].rendezvous_address == "10.0.1.100");
  // By a jump host it sees that one.
  auto jumped = alone;
  jumped[0].launcher_seen_as = "192.0.2.1";
  CHECK(choice_of(jumped).hosts[0].rendezvous_address == "10.0.1.100");
  jumped[0].interfaces[1] = nic("eth0", "10.9.0.1", 24);
  CHECK(failure_of(jumped).find("no known route to the launcher's machine") != std::string::npos);
}

TEST_CASE("Every pair is probed in a small job, n log n in a large one") {
  const auto cluster = [](int count) {
    std::vector<HostNetwork> hosts;
    for (int i = 0; i < count; ++i) {
      hosts.push_back(host(
          "h" + std::to_string(i),
          {nic("e", "10.0." + std::to_string(i / 250) + "." + std::to_string(1 + i % 250), 16)}));
    }
    return hosts;
  };
  std::size_t targets = 0;
  for (const Probe& probe : candidate_probes(cluster(4), {})) targets += probe.targets.size();
  CHECK(targets == 12);
  targets = 0;
  for (const Probe& probe : candidate_probes(cluster(512), {})) targets += probe.targets.size();
  CHECK(targets == 512 * 9);
  auto silent = cluster(2);
  silent[1].probe_port = 0;
  CHECK(candidate_probes(silent, {})[0].targets.empty());
}

TEST_CASE("$SSH_CONNECTION has both ends") {
  HostNetwork out;
  read_ssh_connection("fe80::1%eth0 51234 10.0.0.2 22\n", out);
  CHECK(out.launcher_seen_as == "fe80::1");
  CHECK(out.reached_at == "10.0.0.2");
  HostNetwork none;
  read_ssh_connection("", none);
  CHECK(none.reached_at.empty());
}

TEST_CASE("Selectors are names, addresses or networks") {
  for (const std::string_view text :
       {"eth0", "ib0.8001", "br-lan", "10.0.0.0/8", "10.1.2.3", "fd00::/8"}) {
    CHECK(check_interface_selector(text));
  }
  for (const std::string_view text :
       {"", "10.0.0.0/33", "a b", "a/b", "^docker0", "!lo", "sixteen-bytes-xx"}) {
    CHECK_FALSE(check_interface_selector(text));
  }
}

TEST_CASE("A network is an address without its host bits") {
  CHECK(format_cidr(network_of(parse_ip_address("10.1.2.3").value(), 12)) == "10.0.0.0/12");
  CHECK(format_cidr(network_of(parse_ip_address("10.1.2.3").value(), 32)) == "10.1.2.3/32");
  CHECK(format_cidr(network_of(parse_ip_address("10.1.2.3").value(), 0)) == "0.0.0.0/0");
}

// However the hosts look: the choice keeps the promises, or there is a failure with a text.
TEST_CASE("Every choice keeps the rules") {
  std::mt19937 random(23);
  int chosen = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<HostNetwork> hosts;
    const int count = 1 + static_cast<int>(random() % 4);
    for (int i = 0; i < count; ++i) {
      std::vector<InterfaceInfo> interfaces;
      for (std::size_t k = random() % 4; k > 0; --k) {
        const std::string net = std::to_string(random() % 3);
        const std::string own = std::to_string(1 + random() % 4);
        interfaces.push_back(nic("e" + std::to_string(k), "10.0." + net + "." + own, 24));
        interfaces.back().up = random() % 5 != 0;
      }
      hosts.push_back(host("h" + std::to_string(i), interfaces, "", "10.0.1.100"));
      if (random() % 4 == 0) hosts.back().boot_id = "boot-h0";
    }
    std::vector<ProbeResult> answers(hosts.size());
    const auto probes = candidate_probes(hosts, {});
    for (std::size_t i = 0; i < hosts.size(); ++i) {
      for (const ProbeTarget& target : probes[i].targets) {
        for (const std::string& address : target.addresses) {
          answers[i].answers.push_back(answer(target.host_index, address, random() % 4 != 0));
        }
      }
    }
    const auto result = choose_network(hosts, kLauncher, {}, answers);
    if (const auto* failure = std::get_if<Failure>(&result)) {
      CHECK_FALSE(failure->message.empty());
      continue;
    }
    ++chosen;
    const auto& choice = std::get<NetworkChoice>(result);
    const bool one_machine = all_on_one_machine(hosts);
    for (std::size_t i = 0; i < hosts.size(); ++i) {
      CHECK((choice.hosts[i].interface == "lo") == one_machine);
      for (std::size_t j = 0; j < hosts.size(); ++j) {
        if (same_machine(hosts[i], hosts[j])) continue;
        CHECK(choice.hosts[i].address != choice.hosts[j].address);
        for (const ProbeAnswer& given : answers[j].answers) {
          if (given.host_index == static_cast<int>(i) && given.address == choice.hosts[i].address) {
            CHECK(given.reached);
          }
        }
      }
    }
  }
  CHECK(chosen > 100);
}

}  // namespace
}  // namespace hora::launcher
