// SPDX-License-Identifier: Apache-2.0
#include "launcher/network/host_addresses.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>

#include "rendezvous/base/address.h"

namespace hora::launcher {

// The boot id and the namespaces of network and PIDs distinguish machines and containers. Virtual
// machines that were resumed from one image have the same ones, and addresses of their own.

namespace {

// Networks of containers have the same addresses on every machine.
std::set<std::string> own_addresses(const Hello& hello) {
  std::set<std::string> addresses;
  for (const InterfaceInfo& each : hello.interfaces) {
    if (!each.loopback && !each.virtual_bridge) addresses.insert(each.address);
  }
  return addresses;
}

}  // namespace

bool are_one_machine(const Hello& a, const Hello& b) {
  if (a.boot_id.empty() || a.boot_id != b.boot_id || a.pid_namespace != b.pid_namespace) {
    return false;
  }
  // An address may come or go between two looks, so one in common is enough.
  const auto own = own_addresses(a);
  const auto other = own_addresses(b);
  return (own.empty() && other.empty()) ||
         std::any_of(own.begin(), own.end(),
                     [&other](const std::string& address) { return other.count(address) > 0; });
}

}  // namespace hora::launcher

namespace hora::launcher::doctor {

// Puts the addresses of a host in the order in which another host should try them: shared networks
// before routed ones, IPv4 before IPv6.

namespace {

// A host with many addresses would prolong every probe.
constexpr std::size_t kMostAddresses = 3;

}  // namespace

std::vector<std::string> addresses_towards(const Hello& from, const Hello& to) {
  std::vector<std::pair<int, std::string>> found;
  for (const InterfaceInfo& nic : to.interfaces) {
    if (!nic.up || nic.loopback || nic.virtual_bridge) continue;
    const auto address = parse_ip_address(nic.address);
    if (!address) continue;
    int rank = address->v6 ? 3 : 2;
    for (const InterfaceInfo& own : from.interfaces) {
      const auto network = parse_cidr(own.address + "/" + std::to_string(own.prefix_length));
      if (own.up && !own.loopback && !own.virtual_bridge && network &&
          network->contains(*address)) {
        rank = std::min(rank, address->v6 ? 1 : 0);
      }
    }
    found.emplace_back(rank, nic.address);
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> out;
  for (const auto& [rank, address] : found) {
    if (out.size() < kMostAddresses) out.push_back(address);
  }
  return out;
}

}  // namespace hora::launcher::doctor

namespace hora::launcher {

// Lists each host's addresses with the reason why an address cannot be used, or in the order of
// preference. The reasons appear in the error if no network is left.

namespace {

// Returns the first selector that names this interface or address.
std::optional<std::size_t> find_selector(const std::vector<std::string>& wanted,
                                         const InterfaceInfo& interface, const IpAddress& address) {
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i] == interface.name) return i;
    const auto network = parse_cidr(wanted[i]);
    if (network && network->contains(address)) return i;
  }
  return std::nullopt;
}

// For each address, the first host that has it, and the first one on another machine. Every machine
// has 127.0.0.1: to keep all of them would be quadratic.
using Owners = std::map<IpAddress, std::vector<const HostNetwork*>>;

// Two hosts in one list may be the same machine under two names.
Owners find_owners(const std::vector<HostNetwork>& hosts) {
  Owners owners;
  for (const HostNetwork& host : hosts) {
    for (const InterfaceInfo& interface : host.interfaces) {
      const auto address = parse_ip_address(interface.address);
      if (!address) continue;
      auto& known = owners[*address];
      if (known.empty() || (known.size() == 1 && !same_machine(*known.front(), host))) {
        known.push_back(&host);
      }
    }
  }
  return owners;
}

class HostExaminer {
 public:
  HostExaminer(const HostNetwork& host, const std::vector<std::string>& wanted,
               const Owners& owners, bool one_machine)
      : host_(host), wanted_(wanted), owners_(owners), one_machine_(one_machine) {}

  std::vector<Candidate> run() const {
    std::vector<Candidate> out;
    for (const InterfaceInfo& interface : host_.interfaces) {
      if (const auto address = parse_ip_address(interface.address)) {
        out.push_back(examine(interface, *address));
      }
    }
    std::stable_sort(out.begin(), out.end(), [](const Candidate& a, const Candidate& b) {
      return preference(a) < preference(b);
    });
    return out;
  }

 private:
  Candidate examine(const InterfaceInfo& interface, const IpAddress& address) const {
    Candidate candidate;
    candidate.interface = interface;
    candidate.address = address;
    candidate.network = network_of(address, interface.prefix_length);
    const auto reached_at = parse_ip_address(host_.reached_at);
    // sshd may report an IPv4 address in its IPv6 form.
    candidate.reached_by = reached_at && reached_at->unmapped() == address;
    const auto selector = find_selector(wanted_, interface, address);
    candidate.wanted = selector.value_or(0);
    candidate.refusal = refuse(interface, address, selector.has_value());
    return candidate;
  }

  // Returns why the ranks cannot use the address; empty if they can.
  std::string refuse(const InterfaceInfo& interface, const IpAddress& address,
                     bool is_wanted) const {
    if (!interface.up) return "down";
    if (!wanted_.empty() && !is_wanted) return "not named by --network-interfaces";
    const bool is_loopback = interface.loopback || address.is_loopback();
    // Loopback is fine as long as all ranks are on one machine.
    if (is_loopback && !one_machine_) return "loopback";
    if (is_loopback) return "";
    if (address.is_link_local() && !is_wanted) return "link-local";
    // An address that two machines share (docker0, say) cannot be unique in the job.
    const auto owners = owners_.find(address);
    if (owners != owners_.end()) {
      for (const HostNetwork* other : owners->second) {
        if (!same_machine(*other, host_)) return "the same address as on " + other->name;
      }
    }
    return "";
  }

  // Smaller is better: the user's order, IPv4, the address that reached the host, no bridge, speed.
  static std::tuple<std::size_t, bool, bool, bool, int> preference(const Candidate& candidate) {
    return {candidate.wanted, candidate.address.v6, !candidate.reached_by,
            candidate.interface.virtual_bridge, -candidate.interface.speed_mbps};
  }

  const HostNetwork& host_;
  const std::vector<std::string>& wanted_;
  const Owners& owners_;
  bool one_machine_;
};

}  // namespace

// Clears the host part of the address.
Cidr network_of(const IpAddress& address, int prefix_length) {
  Cidr network{address, std::clamp(prefix_length, 0, address.bit_count())};
  for (int bit = network.prefix_length; bit < address.bit_count(); ++bit) {
    const auto mask = static_cast<std::uint8_t>(0x80U >> (bit % 8));
    network.address.bytes[static_cast<std::size_t>(bit / 8)] &= static_cast<std::uint8_t>(~mask);
  }
  return network;
}

// An unknown machine equals only itself.
bool same_machine(const HostNetwork& a, const HostNetwork& b) {
  return &a == &b || (!a.boot_id.empty() && a.boot_id == b.boot_id);
}

bool all_on_one_machine(const std::vector<HostNetwork>& hosts) {
  return std::all_of(hosts.begin(), hosts.end(),
                     [&](const HostNetwork& host) { return same_machine(host, hosts.front()); });
}

std::vector<std::vector<Candidate>> find_candidates(const std::vector<HostNetwork>& hosts,
                                                    const std::vector<std::string>& wanted) {
  const Owners owners = find_owners(hosts);
  const bool one_machine = all_on_one_machine(hosts);
  std::vector<std::vector<Candidate>> out;
  for (const HostNetwork& host : hosts) {
    out.push_back(HostExaminer(host, wanted, owners, one_machine).run());
  }
  return out;
}

// The addresses of both are known, so those come first that lie in a network of both.
std::vector<std::string> addresses_for(const HostNetwork& host, const HostNetwork& source,
                                       const std::vector<std::string>& interfaces) {
  constexpr std::size_t kMostAddresses = 4;
  std::vector<std::string> found;
  const auto candidates = find_candidates({source, host}, interfaces);
  for (const Candidate& each : candidates.front()) {
    if (each.refusal.empty() && found.size() < kMostAddresses) {
      found.push_back(format_address(each.address));
    }
  }
  return found;
}

}  // namespace hora::launcher
