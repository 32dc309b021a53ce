// SPDX-License-Identifier: Apache-2.0
#include "launcher/fleet/host_connector.h"

#include <algorithm>
#include <filesystem>
#include <future>
#include <map>
#include <system_error>
#include <utility>

#include <gnu/libc-version.h>

#include "launcher/network/host_addresses.h"
#include "launcher/text/text.h"
#include "launcher/transports/transport.h"
#include "rendezvous/base/address.h"
#include "rendezvous/base/machine.h"
#include "rendezvous/base/text.h"
#include "rendezvous/base/time.h"
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

// Not all of what describe_machine() finds: GPUs, addresses and the user are for the report, which
// asks the agent (StaticRun::known_hello).

std::optional<PresumedHello> presume_hello() {
  auto loopback = loopback_interface();
  if (!loopback) return std::nullopt;
  PresumedHello presumed;
  presumed.port = reserve_port();
  if (presumed.port.port == 0) return std::nullopt;
  Hello& hello = presumed.hello;
  hello.version = HORA_VERSION;
  hello.hostname = net::host_name();
  hello.boot_id = machine_id();
  hello.machine = own_machine();
  // This process has loaded the one that the ranks will load.
  hello.c_library = std::string("glibc ") + ::gnu_get_libc_version();
  hello.interfaces = {std::move(*loopback)};
  hello.free_port = presumed.port.port;
  return presumed;
}

// A job has up to two transports: one for the hosts that are this machine, one for all others. Both
// come from the registry by name, so this file knows none of them.

namespace {

// The libraries that agents look for on their hosts, and where programs of the job will. The
// folders are not a secret: every process of a host may see them in the ranks' own programs.
void add_library_arguments(const Installation& installation, std::vector<std::string>& arguments) {
  std::vector<std::string> sonames;
  for (const VendorNeed& need : installation.own().vendor_needs) {
    for (std::string& soname : libraries_of(need)) sonames.push_back(std::move(soname));
  }
  if (sonames.empty()) return;
  arguments.insert(arguments.end(), {"--find", join(sonames, ",")});
  for (const auto& [option, folders] : {std::pair{"--library-path", &installation.library_path},
                                        std::pair{"--run-path", &installation.run_path},
                                        std::pair{"--program", &installation.program}}) {
    if (!folders->empty()) arguments.insert(arguments.end(), {option, *folders});
  }
}

AgentImage agent_image(const JobSpec& spec, const Installation& installation, bool several_hosts) {
  AgentImage image;
  const bool ships = spec.runtime == RuntimeKind::kHora;
  for (const Build& build : installation.builds) {
    // Hosts of that machine learn that there is none.
    if (!build.fault.empty()) continue;
    std::error_code unknown;  // AgentPayloads says why it cannot be read
    image.builds.push_back({build.machine, build.agent_path, build.agent_sha256,
                            ships ? part_list_text(build.needed_parts) : std::string(),
                            std::filesystem::file_size(build.agent_path, unknown)});
  }
  image.machines = installation.machines_text();
  if (ships) image.local_bundle = installation.own().bundle_directory;
  if (several_hosts) image.arguments.push_back("--probe");
  add_library_arguments(installation, image.arguments);
  if (spec.manages_cache) image.arguments.push_back("--cleans-cache");
  // The agent has no limits of its own: what is removed is the launcher's to say, whose
  // configuration people know.
  if (const auto& age = spec.cache_limits.max_age) {
    image.arguments.insert(image.arguments.end(),
                           {"--cache-max-age", std::to_string(age->count())});
  }
  if (const auto& bytes = spec.cache_limits.max_bytes) {
    image.arguments.insert(image.arguments.end(), {"--cache-max-size", std::to_string(*bytes)});
  }
  return image;
}

// The output of a remote shell, or the name of a directory there, is shown on one short line.
StageObserver showing(StageObserver observer) {
  constexpr std::size_t kShown = 512;
  return [observer = std::move(observer)](int host, Stage stage, std::string_view detail) {
    observer(host, stage, visible_line(shortened(detail, kShown)));
  };
}

}  // namespace

HostConnector::HostConnector(const JobSpec& spec, const Installation& installation,
                             bool several_hosts, MakeTransport make_remote, StageObserver observer)
    : spec_(spec),
      image_(agent_image(spec, installation, several_hosts)),
      make_remote_(std::move(make_remote)),
      observer_(showing(std::move(observer))) {}

Transport& HostConnector::transport_for(bool same_machine) {
  std::unique_ptr<Transport>& transport = same_machine ? local_ : remote_;
  if (!transport && !same_machine && make_remote_) {
    transport = make_remote_(observer_);
  } else if (!transport) {
    const TransportDescriptor& descriptor =
        same_machine ? local_transport() : *find_transport(spec_.transport);
    transport = descriptor.create(spec_, observer_);
  }
  return *transport;
}

Result<os::Fd> HostConnector::connect(const Host& host, int host_index, How how,
                                      Clock::time_point deadline) {
  leave_cpu();
  if (how.same_machine && how.alone) one_cpu_ = OneCpu::stay();
  image_.one_cpu = one_cpu_.get();
  image_.ordered = how.ordered;
  return transport_for(how.same_machine).start(host, host_index, image_, deadline);
}

void HostConnector::proceed() {
  if (local_) local_->proceed();
}

}  // namespace hora::launcher
