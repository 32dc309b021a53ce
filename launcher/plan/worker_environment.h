// SPDX-License-Identifier: Apache-2.0
// Which variables the ranks get: the launcher's own, filtered, and those that describe the rank.
// [pure]
//
// docs/reference/environment.md has the rules as a table. In short:
//   dropped everywhere   variables by which a rank knows its job (a stray HOROVOD_RANK in the shell
//                        cannot win), those of MPI launchers for their own ranks, our secrets
//   stays here           variables of this machine or this login, such as HOME, TMPDIR, DISPLAY,
//                        SSH_AUTH_SOCK, CUDA_VISIBLE_DEVICES: ranks on this machine have it, those
//                        on others have what is set there
//   everything else      travels unchanged, byte for byte
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/plan/job_spec.h"
#include "launcher/plan/plan.h"
#include "rendezvous/contract/worker_env.h"

namespace hora::launcher {

using rendezvous::EnvironmentList;

// PyTorch's Gloo backend listens on this interface.
inline constexpr std::string_view kTorchGlooInterface = "GLOO_SOCKET_IFNAME";

enum class Travel {
  kEverywhere,
  kThisMachine,  // not to another one
  kNowhere,
};
Travel travel_of(std::string_view name);

// Splits "NAME=value" as in environ; entries without '=' or with an empty name are left out, of a
// name that comes twice the first one counts, as for getenv().
EnvironmentList split_environment(const char* const* entries);

// The value of a variable; nothing: it is not set.
std::optional<std::string> value_in(const EnvironmentList& environment, std::string_view name);

// The folder for the launcher's own memory: <cache>/hora-launcher, from XDG_CACHE_HOME and HOME;
// empty: there is none.
std::string launcher_memory_folder(const EnvironmentList& environment);

// The launcher's environment as the ranks of one host get it, with the variables that options set
// (JobSpec::variables and knobs) on top. `same_machine`: the host is the one that the launcher runs
// on. For another machine the variables that stay here are missing: the agent there puts its own.
EnvironmentList forwarded_environment(const EnvironmentList& launcher_environment,
                                      const JobSpec& spec, bool same_machine);
// The same with `variables` in place of JobSpec::variables: those of one of several programs.
EnvironmentList forwarded_environment(const EnvironmentList& launcher_environment,
                                      const JobSpec& spec, bool same_machine,
                                      const std::vector<EnvironmentVariable>& variables);

// With --restarts: which attempt this is, the same for all ranks.
EnvironmentList restart_variables(const JobSpec& spec);

// The names that an agent on another machine takes from its own environment, as
// HostOrder::own_variables has them.
std::vector<std::string> own_variables_of_remote();

// `base` with the variables of `additions` put over it: the whole environment of a host's ranks
// but for what differs from rank to rank. Order: base first, in its order.
EnvironmentList with_variables(EnvironmentList base, const EnvironmentList& additions);

// HOROVOD_CPU_OPERATIONS as the ranks get it: "gloo" unless the user asks for another one.
std::string cpu_operations_of(const JobSpec& spec);

// The variables that the launcher sends to every rank of a host. The user may choose the interface
// of NCCL and PyTorch, and set up oneCCL: the values in `forwarded` stay.
EnvironmentList host_variables(const rendezvous::RendezvousAddress& place,
                               const EnvironmentList& forwarded);

// The variables of the rank in `slot` of `host`.
EnvironmentList rank_variables(const Plan& plan, const HostPlan& host, const Slot& slot);

}  // namespace hora::launcher
