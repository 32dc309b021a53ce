// SPDX-License-Identifier: Apache-2.0
#include "launcher/fleet/local_hosts.h"

#include <algorithm>
#include <future>
#include <map>
#include <utility>

#include "launcher/network/host_addresses.h"
#include "launcher/text/text.h"
#include "rendezvous/base/address.h"
#include "rendezvous/net/addresses.h"

namespace hora::launcher {

// Finds out which hosts are this machine, so that they need no ssh. A host with a user name never
// is: the job must run as that user.

namespace {

bool is_own_address(const IpAddress& address, const std::vector<net::Interface>& interfaces) {
  if (address.is_loopback()) return true;
  return std::any_of(interfaces.begin(), interfaces.end(),
                     [&](const net::Interface& own) { return own.address == address; });
}

// One address of this machine suffices: a name in /etc/hosts often has a loopback address besides
// its public one.
bool resolves_here(const std::string& name, const std::vector<net::Interface>& interfaces) {
  const auto endpoints = net::resolve_host(name, 1);
  return endpoints && std::any_of(endpoints->begin(), endpoints->end(), [&](const Endpoint& e) {
           return is_own_address(e.address, interfaces);
         });
}

}  // namespace

bool is_named_as_this_machine(const Host& host) {
  static const std::string own_name = net::host_name();
  return host.user.empty() && !host.port && (host.name == "localhost" || host.name == own_name);
}

std::vector<bool> find_local_hosts(const std::vector<Host>& hosts) {
  std::vector<bool> local(hosts.size(), false);
  std::vector<std::size_t> unknown;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    if (!hosts[i].user.empty() || hosts[i].port) continue;  // perhaps a container's
    if (is_named_as_this_machine(hosts[i])) {
      local[i] = true;
    } else {
      unknown.push_back(i);
    }
  }
  if (unknown.empty()) return local;

  // If the interfaces cannot be listed, there is no address to compare with.
  const auto listed = net::list_interfaces();
  const std::vector<net::Interface> interfaces = listed ? *listed : std::vector<net::Interface>();
  // Limits the number of threads; a name server may take seconds for each name.
  constexpr std::size_t kAtOnce = 32;
  for (std::size_t first = 0; first < unknown.size(); first += kAtOnce) {
    std::vector<std::pair<std::size_t, std::future<bool>>> lookups;
    for (std::size_t k = first; k < std::min(first + kAtOnce, unknown.size()); ++k) {
      const std::size_t i = unknown[k];
      if (const auto numeric = parse_ip_address(hosts[i].name)) {
        local[i] = is_own_address(*numeric, interfaces);
        continue;
      }
      lookups.emplace_back(i, std::async(std::launch::async, [&interfaces, name = hosts[i].name] {
                             return resolves_here(name, interfaces);
                           }));
    }
    for (auto& [i, lookup] : lookups) local[i] = lookup.get();
  }
  return local;
}

bool hosts_are_machines(const JobSpec& spec) {
  if (spec.engine) return false;
  if (spec.rsh_command.empty()) return spec.transport == "ssh" || spec.transport == "dial";
  const std::string& program = spec.rsh_command.front();
  return program.substr(program.rfind('/') + 1) == "ssh";
}

Status check_one_name_each(const std::vector<Host>& hosts,
                           const std::vector<std::optional<Hello>>& hellos) {
  // Only what may be one machine is compared: of ten thousand hosts, as a rule none.
  std::map<std::pair<std::string, std::int64_t>, std::vector<std::size_t>> alike;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    if (hellos[i]) alike[{hellos[i]->boot_id, hellos[i]->pid_namespace}].push_back(i);
  }
  for (const auto& [identity, members] : alike) {
    // The first one stands for the machine.
    std::vector<std::string> names{hosts[members.front()].name};
    for (std::size_t k = 1; k < members.size(); ++k) {
      if (are_one_machine(*hellos[members.front()], *hellos[members[k]])) {
        names.push_back(hosts[members[k]].name);
      }
    }
    if (names.size() == 1) continue;
    return make_error(ErrorCode::kUsage, "hosts " + few_names(names) +
                                             " are one machine; list it once, with all of its "
                                             "slots: its ranks would take the same GPUs and CPUs");
  }
  return Ok{};
}

}  // namespace hora::launcher
