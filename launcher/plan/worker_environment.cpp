// SPDX-License-Identifier: Apache-2.0
// Decides for each variable of the launcher's environment whether ranks may see it. The default is
// to forward, as mpirun users expect; the lists below name the exceptions.
#include "launcher/plan/worker_environment.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace hora::launcher {

namespace {

namespace env = rendezvous::env;

// The pattern is a name, or with a trailing '*' every name that begins so.
bool matches(std::string_view name, std::string_view pattern) {
  if (pattern.back() != '*') return name == pattern;
  pattern.remove_suffix(1);
  return name.substr(0, pattern.size()) == pattern;
}

bool matches_any(std::string_view name, std::span<const std::string_view> patterns) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [name](std::string_view pattern) { return matches(name, pattern); });
}

// A process knows its place in another job by these variables. Inherited, they would make a rank
// join that job, of ours or of another launcher.
constexpr std::string_view kOtherJobs[] = {
    "HORA_AGENT_MARK", "HORA_JOB_DIRECTORY", "HORA_STACKS*", "_HOROVOD_SECRET_KEY", "HORA_RESTART",
    "TORCHELASTIC_*",
    // What mpirun and mpiexec set for a rank: Open MPI 4, 5 and 6, MPICH, Intel MPI, MVAPICH.
    "OMPI_COMM_WORLD_*", "OMPI_UNIVERSE_SIZE", "OMPI_WORLD_*", "OMPI_ARGV", "OMPI_COMMAND",
    "OMPI_APP_CTX_NUM_PROCS", "OMPI_NUM_APP_CTX", "OMPI_FIRST_RANKS", "OMPI_FILE_LOCATION",
    "OMPI_MCA_ess", "OMPI_MCA_ess_base_*", "OMPI_MCA_initial_wdir", "OMPI_MCA_num_procs",
    "OMPI_MCA_orte_app_num", "OMPI_MCA_orte_bound_at_launch", "OMPI_MCA_orte_ess_*",
    "OMPI_MCA_orte_hnp_uri", "OMPI_MCA_orte_jobfam_session_dir", "OMPI_MCA_orte_launch",
    "OMPI_MCA_orte_local_daemon_uri", "OMPI_MCA_orte_num_nodes",
    "OMPI_MCA_orte_precondition_transports", "OMPI_MCA_orte_top_session_dir", "OMPI_MCA_pmix",
    "PMIX_*", "PRTE_LAUNCHED", "PMI_RANK", "PMI_SIZE", "PMI_FD", "PMI_PORT", "PMI_ID",
    "PMI_HOSTNAME", "HYDI_CONTROL_FD", "HYDRA_BSTRAP_*", "MPI_LOCALRANKID", "MPI_LOCALNRANKS",
    "MPIR_CVAR_CH3_INTERFACE_HOSTNAME", "I_MPI_INFO_*", "I_MPI_PIN_INFO", "I_MPI_PIN_MAPPING",
    "MV2_COMM_WORLD_*",
    // The same of Flux.
    "FLUX_TASK_RANK", "FLUX_TASK_LOCAL_ID",
    // Slurm's place of this process in its step. Lightning, JAX and TensorFlow read it as the
    // rank's.
    "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_GTIDS", "SLURM_TASK_PID", "SLURM_STEP*",
    "SLURM_SRUN_*", "SLURM_LAUNCH_*", "SLURM_CPU_BIND*", "SLURMD_NODENAME",
    // The same of jsrun; and the name by which a step of ours calls its host.
    "JSM_*", "HORA_STEP_HOST"};

// Settings whose names begin like those.
constexpr std::string_view kSettings[] = {"PMIX_MCA_*"};

// These describe this machine, this login or this terminal, and would be wrong elsewhere.
constexpr std::string_view kOfThisMachine[] = {
    // the account and its shell
    "HOME", "USER", "LOGNAME", "USERNAME", "SHELL", "MAIL", "PWD", "OLDPWD", "SHLVL", "_",
    "HISTFILE", "BASH_FUNC_*", "SUDO_*", "KRB5CCNAME",
    // the machine
    "HOSTNAME", "HOST", "TMPDIR", "TMP", "TEMP", "XDG_*",
    // the session: sockets, terminals, services
    "SSH_*", "DISPLAY", "XAUTHORITY", "WAYLAND_DISPLAY", "WINDOWID", "DBUS_*", "GPG_*", "TTY",
    "TMUX", "TMUX_PANE", "STY", "TERM_SESSION_ID", "INVOCATION_ID", "JOURNAL_STREAM",
    "NOTIFY_SOCKET", "LISTEN_*", "SYSTEMD_*", "MANAGERPID",
    // which of this machine's devices may be used
    "NVIDIA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"};

// An image has an environment of its own, whose PATH knows the image and not this machine.
constexpr std::string_view kForPods[] = {"HOROVOD_*", "HORA_*", "NCCL_*"};

// Our own secrets reach the ranks through the order, never through inheritance.
bool is_secret_of_ours(std::string_view name) {
  if (name.substr(0, 5) != "HORA_") return false;
  return name.find("TOKEN") != std::string_view::npos ||
         name.find("SECRET") != std::string_view::npos;
}

}  // namespace

Travel travel_of(std::string_view name) {
  if (rendezvous::is_job_variable(name) || is_secret_of_ours(name) ||
      (matches_any(name, kOtherJobs) && !matches_any(name, kSettings))) {
    return Travel::kNowhere;
  }
  // This also covers copies under other names that tools keep, such as SAVED_CUDA_VISIBLE_DEVICES.
  if (name.find("CUDA_VISIBLE_DEVICES") != std::string_view::npos ||
      matches_any(name, kOfThisMachine)) {
    return Travel::kThisMachine;
  }
  return Travel::kEverywhere;
}

EnvironmentList split_environment(const char* const* entries) {
  EnvironmentList list;
  std::unordered_set<std::string_view> seen;
  for (; entries != nullptr && *entries != nullptr; ++entries) {
    const std::string_view entry = *entries;
    const std::size_t equals = entry.find('=');
    if (equals == std::string_view::npos || equals == 0) continue;
    const std::string_view name = entry.substr(0, equals);
    // The first entry of a name counts, as with getenv().
    if (seen.insert(name).second) list.emplace_back(name, entry.substr(equals + 1));
  }
  return list;
}

std::optional<std::string> value_in(const EnvironmentList& environment, std::string_view name) {
  const auto found = std::find_if(environment.begin(), environment.end(),
                                  [name](const auto& variable) { return variable.first == name; });
  return found == environment.end() ? std::nullopt : std::optional(found->second);
}

EnvironmentList forwarded_environment(const EnvironmentList& launcher_environment,
                                      const JobSpec& spec, bool same_machine) {
  return forwarded_environment(launcher_environment, spec, same_machine, spec.variables);
}

EnvironmentList forwarded_environment(const EnvironmentList& launcher_environment,
                                      const JobSpec& spec, bool same_machine,
                                      const std::vector<EnvironmentVariable>& variables) {
  EnvironmentList list;
  for (const auto& variable : launcher_environment) {
    if (spec.pods && !matches_any(variable.first, kForPods)) continue;
    if (spec.container && is_variable_of_image(variable.first)) continue;
    const Travel travel = travel_of(variable.first);
    if (travel == Travel::kNowhere || (travel == Travel::kThisMachine && !same_machine)) continue;
    list.push_back(variable);
  }
  EnvironmentList settings;
  for (const EnvironmentVariable& given : variables) {
    settings.emplace_back(given.name, given.value);
  }
  // After them, so that an option that tunes the runtime wins over a variable.
  for (const EnvironmentVariable& knob : spec.knobs) settings.emplace_back(knob.name, knob.value);
  for (auto& variable : restart_variables(spec)) settings.push_back(std::move(variable));
  return with_variables(std::move(list), settings);
}

// Variables of torchrun: its programs read in them which attempt this is.
EnvironmentList restart_variables(const JobSpec& spec) {
  if (!spec.restart) return {};
  const std::string attempt = std::to_string(spec.restart->attempt);
  return {{"HORA_RESTART", attempt},
          {"TORCHELASTIC_RESTART_COUNT", attempt},
          {"TORCHELASTIC_MAX_RESTARTS", std::to_string(spec.restart->most)},
          {std::string(env::kTorchRunId), spec.restart->run_id}};
}

// On a remote host, ranks see that host's own environment below the forwarded one. Where an engine
// has started the agent, its place in that step is not the rank's, and the step's counts are not
// the job's; those of the job were forwarded, if this is inside of it.
std::vector<std::string> own_variables_of_remote() {
  std::vector<std::string> patterns{"*"};
  for (const std::string_view name : kOtherJobs) patterns.push_back("!" + std::string(name));
  for (const std::string_view name : kSettings) patterns.emplace_back(name);
  for (const char* pattern : {"!SLURM_*", "SLURM_JOB_*", "SLURM_JOBID", "SLURM_CLUSTER_NAME"}) {
    patterns.emplace_back(pattern);
  }
  return patterns;
}

EnvironmentList with_variables(EnvironmentList base, const EnvironmentList& additions) {
  if (additions.empty()) return base;
  base.reserve(base.size() + additions.size());  // its names stay where they are
  std::unordered_map<std::string_view, std::size_t> places;
  for (std::size_t i = 0; i < base.size(); ++i) places.emplace(base[i].first, i);
  for (const auto& variable : additions) {
    const auto [place, is_new] = places.emplace(variable.first, base.size());
    if (is_new) {
      base.push_back(variable);
    } else {
      base[place->second].second = variable.second;
    }
  }
  return base;
}

std::string cpu_operations_of(const JobSpec& spec) {
  std::string value = "gloo";
  // -x may replace the default, and an option (--cpu-operations) either.
  for (const auto* given : {&spec.variables, &spec.knobs}) {
    for (const EnvironmentVariable& each : *given) {
      if (each.name == env::kCpuOperations) value = each.value;
    }
  }
  return value;
}

namespace {

// oneCCL reads them once. Without MPI, which it would initialise; its work is done by the thread
// that calls it, not by one that keeps a core busy.
void add_ccl_variables(const rendezvous::RendezvousAddress& place, EnvironmentList& list) {
  list.emplace_back("CCL_ATL_TRANSPORT", "ofi");
  list.emplace_back("CCL_PROCESS_LAUNCHER", "none");
  list.emplace_back("CCL_WORKER_OFFLOAD", "0");
  list.emplace_back("CCL_LOG_LEVEL", "error");
  if (!place.interfaces.empty()) list.emplace_back("CCL_KVS_IFACE", place.interfaces.front());
}

}  // namespace

EnvironmentList host_variables(const rendezvous::RendezvousAddress& place,
                               const EnvironmentList& forwarded) {
  EnvironmentList list = rendezvous::host_environment(place);
  if (lower_case(place.cpu_operations) == "ccl") add_ccl_variables(place, list);
  if (!place.interfaces.empty()) list.emplace_back(kTorchGlooInterface, place.interfaces.front());
  // With --restarts all attempts share one, which is among the forwarded.
  if (!place.master_address.empty() && !value_in(forwarded, env::kTorchRunId)) {
    list.emplace_back(env::kTorchRunId, place.job_id);
  }
  // A user who names interfaces for NCCL or Gloo, or sets up oneCCL, overrides the launcher's
  // choice.
  const auto is_users = [&forwarded](const auto& variable) {
    const bool is_choice = variable.first == env::kNcclInterfaces ||
                           variable.first == kTorchGlooInterface ||
                           variable.first.starts_with("CCL_");
    return is_choice && value_in(forwarded, variable.first);
  };
  list.erase(std::remove_if(list.begin(), list.end(), is_users), list.end());
  return list;
}

EnvironmentList rank_variables(const Plan& plan, const HostPlan& host, const Slot& slot) {
  rendezvous::RankPlace place;
  place.rank = slot.rank;
  place.size = plan.world_size;
  place.local_rank = slot.local_rank;
  place.local_size = static_cast<int>(host.slots.size());
  place.cross_rank = slot.cross_rank;
  place.cross_size = slot.cross_size;
  place.host_index = host.index;
  place.hostname = host.host.name;
  return rendezvous::rank_environment(place);
}

std::string launcher_memory_folder(const EnvironmentList& environment) {
  const std::string home = value_in(environment, "HOME").value_or("");
  std::string cache = value_in(environment, "XDG_CACHE_HOME").value_or("");
  if (cache.empty() && !home.empty()) cache = home + "/.cache";
  // A relative path would depend on the working directory.
  return cache.substr(0, 1) == "/" ? cache + "/hora-launcher" : std::string();
}

}  // namespace hora::launcher
