// SPDX-License-Identifier: Apache-2.0
// The transport that docs/howto/add-transport.md adds: hosts are containers of this machine's
// Docker, reached with `docker exec -i`.
#include <utility>

#include "launcher/transports/transport.h"

namespace hora::launcher {

namespace {

// rsh_argv() knows that docker takes an argv, and completes it: HOST sh -c LINE.
Status configure(JobSpec& job) {
  job.rsh_command = {"docker", "exec", "-i"};
  return Ok{};
}

constexpr TransportDescriptor kDescriptor{.name = "docker",
                                          .how = "`docker exec -i`",
                                          .configure = configure,
                                          .create = [](const JobSpec& job, StageObserver observer) {
                                            return make_command_transport(job.rsh_command,
                                                                          std::move(observer));
                                          }};

}  // namespace

const TransportDescriptor* docker_transport_descriptor() { return &kDescriptor; }

}  // namespace hora::launcher
