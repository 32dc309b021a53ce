// SPDX-License-Identifier: Apache-2.0
// A job has up to two transports: one for the hosts that are this machine, one for all others. Both
// come from the registry by name, so this file knows none of them.
#include "launcher/fleet/host_connector.h"

#include <utility>

#include "launcher/transports/registry.h"
#include "rendezvous/base/text.h"
#include "rendezvous/base/time.h"

namespace hora::launcher {

namespace {

// What agents look for on their hosts, and where programs of the job will. The folders are nobody's
// secret: every process of a host may see them in the ranks' own programs.
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
    // Hosts of that machine are told that there is none.
    if (!build.fault.empty()) continue;
    image.builds.push_back({build.machine, build.agent_path, build.agent_sha256,
                            ships ? part_list_text(build.needed_parts) : std::string()});
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

// What a remote shell has said, or a directory there is called, is shown on one short line.
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
