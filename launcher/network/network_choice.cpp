// SPDX-License-Identifier: Apache-2.0
// Chooses the addresses that the ranks use. In order: loopback if all ranks share a machine, the
// best network that all hosts have, and then addresses that are proven to be routed. Nothing is
// guessed: without a proof the job fails, with a table of all addresses and reasons.
#include "launcher/network/network_choice.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "launcher/failures/failure_code.h"
#include "launcher/network/host_addresses.h"
#include "rendezvous/base/address.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

// Containers may have dozens of addresses; probing all of them would take too long.
constexpr std::size_t kMaxProbedAddresses = 8;

// The hosts' results for one address of a host.
struct Reachability {
  int reached = 0;
  std::string refused;  // "node2 cannot reach it: Connection refused"; empty: none failed
};

// One candidate per host: all in one network, or each on its own.
struct Option {
  std::vector<const Candidate*> hosts;  // the first one of each host
  std::string reason;
};

// NCCL takes a name for the prefix of names: eth1 also selects eth10 and the VLAN eth1.5.
bool is_prefix_of_another(const std::vector<std::string>& names,
                          const std::vector<InterfaceInfo>& all) {
  return std::any_of(all.begin(), all.end(), [&names](const InterfaceInfo& each) {
    const bool is_named = std::find(names.begin(), names.end(), each.name) != names.end();
    return !is_named && std::any_of(names.begin(), names.end(), [&each](const std::string& name) {
      return each.name.starts_with(name);
    });
  });
}

class Chooser {
 public:
  Chooser(const std::vector<HostNetwork>& hosts, const HostNetwork& launcher,
          const std::vector<std::string>& wanted, const std::vector<ProbeResult>& answers,
          Hosts later, WayBack way_back)
      : hosts_(hosts),
        launcher_(launcher),
        wanted_(wanted),
        candidates_(find_candidates(hosts, wanted)),
        one_machine_(all_on_one_machine(hosts)),
        later_(later),
        way_back_(way_back) {
    judge(answers);
    for (std::size_t host = 0; host < hosts_.size(); ++host) {
      if (same_machine(hosts_[host], launcher_)) on_launchers_host_.push_back(host);
    }
  }

  std::variant<NetworkChoice, Failure> run() {
    // Named interfaces are a decision of the user; do not replace them by loopback.
    std::optional<Option> option;
    const bool loopback_will_do = one_machine_ && wanted_.empty();
    // If other hosts may join later, loopback is the last resort.
    if (loopback_will_do && later_ == Hosts::kFixed) option = choose_loopback();
    if (!option) option = choose_common_network();
    if (!option && !one_machine_) option = choose_routed();
    if (!option && loopback_will_do) option = choose_loopback();
    if (!option) return failure();
    return complete(*option);
  }

 private:
  void judge(const std::vector<ProbeResult>& answers) {
    reachability_.resize(hosts_.size());
    for (std::size_t from = 0; from < answers.size(); ++from) {
      for (const ProbeAnswer& answer : answers[from].answers) {
        const auto to = static_cast<std::size_t>(answer.host_index);
        const auto address = parse_ip_address(answer.address);
        // The answers come from the agents; a wrong index must not crash the launcher.
        if (to >= hosts_.size() || !address) continue;
        Reachability& reachability = reachability_[to][*address];
        if (answer.reached) {
          ++reachability.reached;
          // The first refusal is enough to explain.
        } else if (reachability.refused.empty()) {
          reachability.refused = hosts_[from].name + " cannot reach it: " +
                                 (answer.error.empty() ? "no answer" : answer.error);
        }
      }
    }
  }

  const Reachability& reachability_of(std::size_t host, const Candidate& candidate) const {
    static const Reachability unknown;
    const auto found = reachability_[host].find(candidate.address);
    return found == reachability_[host].end() ? unknown : found->second;
  }

  bool is_usable(std::size_t host, const Candidate& candidate) const {
    const bool is_loopback = candidate.interface.loopback && wanted_.empty();
    if (is_loopback && later_ == Hosts::kMayCome) return false;
    // An address that no host has tried counts as usable: not all pairs are probed.
    return candidate.refusal.empty() && reachability_of(host, candidate).refused.empty();
  }

  std::optional<Option> choose_loopback() const {
    Option option;
    option.reason = "all ranks are on one machine";
    for (const auto& own : candidates_) {
      const auto found = std::find_if(own.begin(), own.end(), [](const Candidate& candidate) {
        return candidate.interface.loopback && candidate.refusal.empty();
      });
      if (found == own.end()) return std::nullopt;
      option.hosts.push_back(&*found);
    }
    return option;
  }

  // Returns the usable networks that every host is in, each with the first candidate of every host.
  std::vector<Option> common_networks() const {
    std::map<Cidr, Option> found;
    for (std::size_t host = 0; host < hosts_.size(); ++host) {
      for (const Candidate& candidate : candidates_[host]) {
        if (!is_usable(host, candidate)) continue;
        // A network with a single address connects nothing; such hosts are reached through a
        // router.
        if (candidate.network.prefix_length == candidate.address.bit_count() && !one_machine_) {
          continue;
        }
        Option& option = found[candidate.network];
        // A host that lacks the network stops the list from growing, so its size shows it at the
        // end.
        if (option.hosts.size() == host) option.hosts.push_back(&candidate);
      }
    }
    std::vector<Option> out;
    for (auto& [network, option] : found) {
      if (option.hosts.size() == hosts_.size()) out.push_back(std::move(option));
    }
    return out;
  }

  std::optional<Option> choose_common_network() const {
    std::vector<Option> options = common_networks();
    if (options.empty()) return std::nullopt;
    auto best = std::min_element(
        options.begin(), options.end(),
        [this](const Option& a, const Option& b) { return preference(a) < preference(b); });
    best->reason = "network " + format_cidr(best->hosts[0]->network) + ", ";
    if (!wanted_.empty()) {
      best->reason += "named by --network-interfaces";
    } else if (reached_count(*best) > 0) {
      best->reason += "by which the hosts were reached";
    } else if (options.size() > 1) {
      best->reason += "the best of " + std::to_string(options.size()) + " that all hosts have";
    } else {
      best->reason += "the only one that all hosts have";
    }
    return std::move(*best);
  }

  static int reached_count(const Option& option) {
    return static_cast<int>(
        std::count_if(option.hosts.begin(), option.hosts.end(),
                      [](const Candidate* candidate) { return candidate->reached_by; }));
  }

  // Smaller is better: the user's order, IPv4, the number of hosts reached this way, no bridge, the
  // speed of the slowest interface, the position on the first host.
  std::tuple<std::size_t, bool, int, bool, int, std::size_t> preference(
      const Option& option) const {
    std::size_t wanted = 0;
    bool is_bridge = false;
    int speed = option.hosts[0]->interface.speed_mbps;
    for (const Candidate* candidate : option.hosts) {
      wanted = std::max(wanted, candidate->wanted);
      is_bridge = is_bridge || candidate->interface.virtual_bridge;
      speed = std::min(speed, candidate->interface.speed_mbps);
    }
    const auto& first = hosts_[0].interfaces;
    const auto place = std::find(first.begin(), first.end(), option.hosts[0]->interface);
    return {wanted,
            option.hosts[0]->address.v6,
            -reached_count(option),
            is_bridge,
            -speed,
            static_cast<std::size_t>(place - first.begin())};
  }

  // Without a common network: addresses of one family that every host which tried has reached, or
  // that the launcher itself reached if no host tried.
  std::optional<Option> choose_routed() const {
    for (const bool v6 : {false, true}) {
      Option option;
      option.reason = "no common network; the hosts reach each other at this address";
      for (std::size_t host = 0; host < hosts_.size(); ++host) {
        const auto& own = candidates_[host];
        const auto found = std::find_if(own.begin(), own.end(), [&](const Candidate& candidate) {
          const bool is_proven =
              reachability_of(host, candidate).reached > 0 || candidate.reached_by;
          return candidate.address.v6 == v6 && is_usable(host, candidate) && is_proven;
        });
        if (found == own.end()) break;
        option.hosts.push_back(&*found);
      }
      if (option.hosts.size() == hosts_.size()) return option;
    }
    return std::nullopt;
  }

  // All but the way to the rendezvous.
  HostRoute route_of(const Option& option, std::size_t host) const {
    const Candidate& chosen = *option.hosts[host];
    HostRoute route;
    route.interface = chosen.interface.name;
    route.address = format_address(chosen.address);
    route.interfaces = named_interfaces(host, chosen);
    route.is_prefix = is_prefix_of_another(route.interfaces, hosts_[host].interfaces);
    route.reason = option.reason;
    return route;
  }

  // Each host needs a way back to the launcher, too, for the rendezvous.
  std::variant<NetworkChoice, Failure> complete(const Option& option) const {
    if (way_back_ == WayBack::kRelay) return relayed(option);
    NetworkChoice choice;
    for (std::size_t host = 0; host < hosts_.size(); ++host) {
      HostRoute route = route_of(option, host);
      const auto back = way_back(option, host);
      if (!back && way_back_ == WayBack::kNeeded) return no_way_back(host);
      if (!back) return relayed(option);
      route.rendezvous_address = format_address(*back);
      auto& listen = choice.listen_addresses;
      if (std::find(listen.begin(), listen.end(), route.rendezvous_address) == listen.end()) {
        listen.push_back(route.rendezvous_address);
      }
      choice.hosts.push_back(std::move(route));
    }
    return choice;
  }

  // One relay for all: a rank that meets others needs the same rendezvous as they.
  NetworkChoice relayed(const Option& option) const {
    NetworkChoice choice;
    choice.relayed = true;
    choice.listen_addresses = {"127.0.0.1"};
    for (std::size_t host = 0; host < hosts_.size(); ++host) {
      HostRoute route = route_of(option, host);
      route.rendezvous_address = format_address(option.hosts[0]->address);
      route.reason += "; the rendezvous is reached through " + hosts_[0].name;
      choice.hosts.push_back(std::move(route));
    }
    return choice;
  }

  // With several named interfaces, NCCL may use all of them.
  std::vector<std::string> named_interfaces(std::size_t host, const Candidate& chosen) const {
    std::vector<std::string> names{chosen.interface.name};
    if (wanted_.empty()) return names;
    for (const Candidate& candidate : candidates_[host]) {
      const std::string& name = candidate.interface.name;
      if (candidate.refusal.empty() && std::find(names.begin(), names.end(), name) == names.end()) {
        names.push_back(name);
      }
    }
    return names;
  }

  // Returns the launcher's address as seen from a host: the ranks' address if ranks run on the
  // launcher's machine; else the one from which the host was reached; else one in the chosen
  // network, or in any network of the host.
  std::optional<IpAddress> way_back(const Option& option, std::size_t host) const {
    for (const std::size_t i : on_launchers_host_) {
      // A loopback address only helps ranks on the same machine.
      const bool is_reachable =
          !option.hosts[i]->interface.loopback || same_machine(hosts_[host], launcher_);
      if (is_reachable) return option.hosts[i]->address;
    }
    std::optional<IpAddress> in_network;
    const auto seen_as = parse_ip_address(hosts_[host].launcher_seen_as);
    for (const InterfaceInfo& interface : launcher_.interfaces) {
      const auto address = parse_ip_address(interface.address);
      if (!address || !interface.up) continue;
      if (seen_as && seen_as->unmapped() == *address) return *address;
      const bool shares =
          network_of(*address, interface.prefix_length).contains(option.hosts[host]->address);
      if (shares && !interface.loopback && !in_network) in_network = *address;
    }
    return in_network ? in_network : in_any_network(host);
  }

  // A single host uses loopback, and --network-interfaces may name a network without the launcher,
  // so look at all networks. On the launcher's side a bridge counts: a container is reached over
  // docker0 although it has none itself.
  std::optional<IpAddress> in_any_network(std::size_t host) const {
    for (const InterfaceInfo& interface : launcher_.interfaces) {
      const auto address = parse_ip_address(interface.address);
      if (!address || !interface.up || interface.loopback) continue;
      const Cidr network = network_of(*address, interface.prefix_length);
      for (const Candidate& candidate : candidates_[host]) {
        const InterfaceInfo& own = candidate.interface;
        const bool same_network = network_of(candidate.address, own.prefix_length) == network;
        if (own.up && !own.loopback && !own.virtual_bridge && same_network) return *address;
      }
    }
    return std::nullopt;
  }

  // A jump host hides the launcher's address; the message explains this common case.
  Failure no_way_back(std::size_t host) const {
    std::string message = hosts_[host].name + " has no known route to the launcher's machine";
    if (!hosts_[host].launcher_seen_as.empty()) {
      message += ": it sees the launcher as " + hosts_[host].launcher_seen_as +
                 ", which is not an address of that machine: a jump host (ProxyJump) or address "
                 "translation is in between";
    } else {
      message += ": no network in common, and the transport does not report the address";
    }
    message += table(launcher_.name, launcher_.interfaces);
    return {std::string(failure::kNetwork), std::move(message),
            "Start horarun on one of the hosts, on the jump host, or on another machine that they "
            "can reach."};
  }

  static std::string table(const std::string& name, const std::vector<InterfaceInfo>& interfaces) {
    std::string out = "\n  " + name + ":";
    for (const InterfaceInfo& interface : interfaces) {
      out += "\n    " + describe(interface);
    }
    return out;
  }

  static std::string describe(const InterfaceInfo& interface) {
    std::string out =
        interface.name + " " + interface.address + "/" + std::to_string(interface.prefix_length);
    if (interface.speed_mbps > 0) out += " " + std::to_string(interface.speed_mbps) + " Mb/s";
    return out;
  }

  // Prints all addresses with their reasons, since the user has to find the one that should work.
  Failure failure() const {
    std::string message;
    for (std::size_t host = 0; host < hosts_.size() && message.empty(); ++host) {
      const auto& own = candidates_[host];
      const bool has_any =
          std::any_of(own.begin(), own.end(), [](const Candidate& c) { return c.refusal.empty(); });
      if (!wanted_.empty() && !has_any) {
        message = "--network-interfaces " + join(wanted_, ",") + " names nothing usable on " +
                  hosts_[host].name;
      }
    }
    if (message.empty())
      message = "the hosts have no network over which all of them can communicate";
    for (std::size_t host = 0; host < hosts_.size(); ++host) {
      message += "\n  " + hosts_[host].name + ":";
      if (candidates_[host].empty()) {
        message += " no address: not even the loopback interface is up";
      }
      for (const Candidate& candidate : candidates_[host]) {
        message += "\n    " + describe(candidate.interface);
        std::string why = candidate.refusal;
        if (why.empty()) why = reachability_of(host, candidate).refused;
        if (!why.empty()) message += " (" + why + ")";
      }
    }
    return {std::string(failure::kNetwork), std::move(message), advice()};
  }

  // An interface gets its addresses when it comes up; a new network namespace has none up.
  std::string advice() const {
    const bool no_loopback = std::any_of(candidates_.begin(), candidates_.end(),
                                         [](const auto& each) { return each.empty(); });
    if (no_loopback) return "Bring the loopback interface up there: ip link set lo up";
    return std::string(find_failure_class(failure::kNetwork)->fix);
  }

  const std::vector<HostNetwork>& hosts_;
  const HostNetwork& launcher_;
  const std::vector<std::string>& wanted_;
  std::vector<std::vector<Candidate>> candidates_;
  bool one_machine_;
  Hosts later_;
  WayBack way_back_;
  std::vector<std::map<IpAddress, Reachability>> reachability_;  // by host
  std::vector<std::size_t> on_launchers_host_;                   // hosts that are its machine
};

// Returns the hosts that `from` probes: all of them, or in large jobs those at distances 1, 2, 4,
// ..., so that the number of probes grows with n log n.
std::vector<std::size_t> partners(std::size_t from, std::size_t count) {
  std::vector<std::size_t> out;
  const bool all_pairs = count <= static_cast<std::size_t>(kAllPairsHosts);
  for (std::size_t distance = 1; distance < count;
       distance = all_pairs ? distance + 1 : distance * 2) {
    out.push_back((from + distance) % count);
  }
  return out;
}

}  // namespace

HostNetwork host_network(std::string name, const Hello& hello, bool remote) {
  HostNetwork network;
  network.name = std::move(name);
  network.boot_id = hello.boot_id;
  network.interfaces = hello.interfaces;
  network.probe_port = hello.probe_port;
  network.probe_nonce = hello.probe_nonce;
  if (remote) read_ssh_connection(hello.ssh_connection, network);
  return network;
}

// SSH_CONNECTION is "client-address client-port server-address server-port"; an address may have a
// zone.
void read_ssh_connection(std::string_view text, HostNetwork& host) {
  const auto words = split(trim(text), ' ');
  if (words.size() != 4) return;
  host.launcher_seen_as = words[0].substr(0, words[0].find('%'));
  host.reached_at = words[2].substr(0, words[2].find('%'));
}

Status check_interface_selector(std::string_view text) {
  if (text.empty()) {
    return make_error(ErrorCode::kUsage, "expected an interface or a network between commas");
  }
  if (parse_cidr(text)) return Ok{};
  if (text.find('/') != std::string_view::npos) {
    return make_error(ErrorCode::kUsage,
                      quote(text) + " is not a network; expected one such as 10.0.0.0/8");
  }
  // "^docker0", as NCCL has it.
  if (text.front() == '^' || text.front() == '!') {
    return make_error(ErrorCode::kUsage, quote(text) +
                                             " excludes; expected the interfaces or networks to "
                                             "use, such as eth0 or 10.0.0.0/8");
  }
  const bool has_odd_byte = std::any_of(text.begin(), text.end(), [](char c) {
    return static_cast<unsigned char>(c) <= ' ' || c == 0x7F;
  });
  // The kernel limits names to 15 bytes.
  if (has_odd_byte || text.size() > 15) {
    return make_error(ErrorCode::kUsage,
                      quote(text) +
                          " is not the name of an interface; expected one such as eth0 or "
                          "10.0.0.0/8");
  }
  return Ok{};
}

std::vector<Probe> candidate_probes(const std::vector<HostNetwork>& hosts,
                                    const std::vector<std::string>& wanted) {
  std::vector<Probe> probes(hosts.size());
  // On one machine there is nothing to probe.
  if (hosts.empty() || all_on_one_machine(hosts)) return probes;
  const auto candidates = find_candidates(hosts, wanted);
  for (std::size_t from = 0; from < hosts.size(); ++from) {
    for (const std::size_t to : partners(from, hosts.size())) {
      if (same_machine(hosts[from], hosts[to]) || hosts[to].probe_port == 0) continue;
      ProbeTarget target;
      target.host_index = static_cast<int>(to);
      target.port = hosts[to].probe_port;
      target.nonce = hosts[to].probe_nonce;
      for (const Candidate& candidate : candidates[to]) {
        if (candidate.refusal.empty() && target.addresses.size() < kMaxProbedAddresses) {
          target.addresses.push_back(format_address(candidate.address));
        }
      }
      if (!target.addresses.empty()) probes[from].targets.push_back(std::move(target));
    }
  }
  return probes;
}

std::variant<NetworkChoice, Failure> choose_network(const std::vector<HostNetwork>& hosts,
                                                    const HostNetwork& launcher,
                                                    const std::vector<std::string>& wanted,
                                                    const std::vector<ProbeResult>& answers,
                                                    Hosts later, WayBack way_back) {
  if (hosts.empty()) return NetworkChoice{};
  return Chooser(hosts, launcher, wanted, answers, later, way_back).run();
}

}  // namespace hora::launcher
