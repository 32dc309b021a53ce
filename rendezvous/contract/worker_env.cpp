// SPDX-License-Identifier: Apache-2.0
// The environment is the only way in which a launcher reaches a program that it does not know, so
// it follows the conventions of Horovod, PyTorch and NCCL at the same time.
#include "rendezvous/contract/worker_env.h"

#include <algorithm>
#include <array>

#include "rendezvous/base/text.h"

namespace hora::rendezvous {

namespace {

// Every variable that one of the two lists below may hold, except those that a user may choose.
constexpr std::array kJobVariables = {
    env::kHostname,
    env::kRank,
    env::kSize,
    env::kLocalRank,
    env::kLocalSize,
    env::kCrossRank,
    env::kCrossSize,
    env::kRendezvousAddress,
    env::kRendezvousPort,
    env::kElastic,
    env::kTorchRank,
    env::kTorchWorldSize,
    env::kTorchLocalRank,
    env::kTorchLocalWorldSize,
    env::kTorchGroupRank,
    env::kMasterAddress,
    env::kMasterPort,
    env::kJobId,
    env::kRendezvousToken,
    env::kRendezvousTls,
    env::kFlightRecorder,
    env::kWorker,
    env::kRound,
    env::kKnowsState,
};

void add(EnvironmentList& list, std::string_view name, std::string value) {
  list.emplace_back(std::string(name), std::move(value));
}

void add(EnvironmentList& list, std::string_view name, int value) {
  add(list, name, std::to_string(value));
}

// An empty variable would override a default that an absent one leaves alone.
void add_unless_empty(EnvironmentList& list, std::string_view name, const std::string& value) {
  if (!value.empty()) add(list, name, value);
}

}  // namespace

// Empty settings are left out, so the runtime's own defaults apply.
EnvironmentList host_environment(const RendezvousAddress& place) {
  EnvironmentList list;
  add_unless_empty(list, env::kJobId, place.job_id);
  // Address and port belong together: half of them would send a worker to the wrong server.
  if (!place.rendezvous_address.empty()) {
    add(list, env::kRendezvousAddress, place.rendezvous_address);
    add(list, env::kRendezvousPort, place.rendezvous_port);
  }
  add_unless_empty(list, env::kRendezvousToken, place.token);
  add_unless_empty(list, env::kRendezvousTls, place.tls_fingerprint);
  add_unless_empty(list, env::kController, place.controller);
  add_unless_empty(list, env::kCpuOperations, place.cpu_operations);
  if (!place.interfaces.empty()) {
    // Gloo takes one interface, NCCL a list of prefixes, or of names after a '='
    // (findings/nccl-interface-prefix.sh). Scripts read the plain list, so '=' is for hosts that
    // need it.
    add(list, env::kGlooInterface, place.interfaces.front());
    add(list, env::kNcclInterfaces,
        (place.exact_interfaces ? "=" : "") + join(place.interfaces, ","));
  }
  if (!place.master_address.empty()) {
    add(list, env::kMasterAddress, place.master_address);
    add(list, env::kMasterPort, place.master_port);
  }
  if (place.elastic) add(list, env::kElastic, 1);
  // Otherwise Python holds back a rank's output until its buffer is full.
  add(list, env::kPythonUnbuffered, 1);
  return list;
}

EnvironmentList rank_environment(const RankPlace& place) {
  EnvironmentList list;
  // Exactly as in the host list: Horovod's workers use it as a scope's name.
  add(list, env::kHostname, place.hostname);
  add(list, env::kRank, place.rank);
  add(list, env::kSize, place.size);
  add(list, env::kLocalRank, place.local_rank);
  add(list, env::kLocalSize, place.local_size);
  add(list, env::kCrossRank, place.cross_rank);
  add(list, env::kCrossSize, place.cross_size);
  // The same numbers under the names that torch.distributed reads.
  add(list, env::kTorchRank, place.rank);
  add(list, env::kTorchWorldSize, place.size);
  add(list, env::kTorchLocalRank, place.local_rank);
  add(list, env::kTorchLocalWorldSize, place.local_size);
  // torchrun's "group" is a host.
  add(list, env::kTorchGroupRank, place.host_index);
  return list;
}

std::span<const std::string_view> job_variable_names() { return kJobVariables; }

bool is_job_variable(std::string_view name) {
  return std::find(kJobVariables.begin(), kJobVariables.end(), name) != kJobVariables.end();
}

}  // namespace hora::rendezvous
