// SPDX-License-Identifier: Apache-2.0
// ssh: with libssh where this build has it, otherwise with the system's client.
#include <utility>

#include "launcher/transports/registry.h"
#include "launcher/transports/ssh_target.h"

namespace hora::launcher {

namespace {

std::unique_ptr<Transport> create(const JobSpec& job, StageObserver observer) {
#if HORA_WITH_SSH
  return make_ssh_transport({job.ssh, job.fan_out, 0, job.hosts_come_late}, std::move(observer));
#else
  // The client reads the configuration itself.
  std::vector<std::string> command{"ssh", "-T"};
  for (std::string& word : ssh_arguments(job.ssh)) command.push_back(std::move(word));
  return make_command_transport(std::move(command), std::move(observer));
#endif
}

constexpr TransportDescriptor kDescriptor{
    .name = "ssh",
    .how = "libssh in non-blocking mode: a few threads serve all hosts, one connection per host",
    .options = "-p -i --ssh-config-file --accept-new-host-keys --fan-out",
    .create = create};

}  // namespace

const TransportDescriptor* ssh_transport_descriptor() { return &kDescriptor; }

}  // namespace hora::launcher
