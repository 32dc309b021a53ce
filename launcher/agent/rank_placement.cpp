// SPDX-License-Identifier: Apache-2.0
// Applies the plan for CPUs, threads and GPUs to the ranks of this host. Each choice leaves a note,
// which --verbose prints.
#include "launcher/agent/rank_placement.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <string_view>

#include "launcher/agent/host_capacity.h"
#include "launcher/machine/host_facts.h"
#include "launcher/plan/binding.h"
#include "launcher/process/cgroup_limits.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

constexpr std::string_view kThreads = "OMP_NUM_THREADS";
constexpr std::string_view kDevices = "CUDA_VISIBLE_DEVICES";
constexpr std::string_view kJaxDevices = "JAX_LOCAL_DEVICE_IDS";

// Finds a variable as the ranks would: in the order, else in this machine's environment if the
// ranks inherit it.
const char* find_variable(const HostOrder& order, const char* const* machine,
                          std::string_view name) {
  for (const auto& [own, value] : order.environment) {
    if (own == name) return value.c_str();
  }
  for (; !order.own_variables.empty() && machine != nullptr && *machine != nullptr; ++machine) {
    const std::string_view entry(*machine);
    if (entry.size() > name.size() && entry.substr(0, name.size()) == name &&
        entry[name.size()] == '=') {
      return *machine + name.size() + 1;
    }
  }
  return nullptr;
}

// A user who sets the number of threads knows better.
void limit_threads(HostOrder& order, const char* const* machine, std::size_t cpus,
                   RankPlacement& placement) {
  if (!order.limit_threads || cpus == 0 || find_variable(order, machine, kThreads) != nullptr)
    return;
  int& threads = placement.binding.threads;
  std::string quota;
  if (const auto allowed = cgroup_limits("").cpus;
      allowed && *allowed < static_cast<double>(cpus)) {
    threads = threads_within(*allowed, static_cast<int>(order.ranks.size()), threads);
    char text[64];
    std::snprintf(text, sizeof text, ", of which the cgroup's quota allows %.4g", *allowed);
    quota = text;
  }
  order.environment.emplace_back(kThreads, std::to_string(threads));
  placement.notes.push_back(
      std::string(kThreads) + "=" + std::to_string(threads) + " for " +
      (order.ranks.size() == 1 ? "1 rank"
                               : "each of " + std::to_string(order.ranks.size()) + " ranks") +
      " on " + counted(cpus, "CPU") + quota + "; set it yourself for another number");
}

// A value for a rank's own program, which comes before that of the host.
const std::string* own_value(const RankOrder& rank, std::string_view variable) {
  for (const auto& [name, value] : rank.environment) {
    if (name == variable) return &value;
  }
  return nullptr;
}

const std::string* own_devices(const RankOrder& rank) { return own_value(rank, kDevices); }

// jax.distributed.initialize() would take the one with the number of the local rank.
void give_all_to_jax(RankOrder& rank, std::size_t gpus) {
  std::vector<std::string> numbers;
  for (std::size_t gpu = 0; gpu < gpus; ++gpu) numbers.push_back(std::to_string(gpu));
  rank.environment.emplace_back(kJaxDevices, join(numbers, ","));
}

Result<std::string> gpus_of(std::string_view list, int ranks, int index, const HostOrder& order) {
  auto devices = visible_gpus(list);
  if (!devices) return std::move(devices).error();
  return plan_gpus(*devices, ranks, index, order.gpus_per_rank);
}

// A container or batch system may have given only some GPUs to this job; share those out. In a job
// of several programs, -x may have chosen for those of one, which share its choice.
Status give_gpus(HostOrder& order, const char* const* machine, RankPlacement& placement) {
  if (order.gpus_per_rank.empty()) return Ok{};
  std::vector<std::string> numbers;
  for (int gpu = 0; gpu < count_gpus(); ++gpu) numbers.push_back(std::to_string(gpu));
  const char* const given = find_variable(order, machine, kDevices);
  const std::string of_host = given != nullptr ? given : join(numbers, ",");
  std::map<std::string, int> sharing;  // by list
  for (const RankOrder& rank : order.ranks) {
    if (const auto* own = own_devices(rank)) ++sharing[*own];
  }
  const bool has_programs = !sharing.empty();
  sharing[of_host] += static_cast<int>(
      std::count_if(order.ranks.begin(), order.ranks.end(),
                    [](const RankOrder& rank) { return own_devices(rank) == nullptr; }));
  // By list, too: how many of its ranks have their GPUs.
  std::map<std::string, int> placed;
  std::map<std::string, int> user;  // the rank that has a GPU
  for (RankOrder& rank : order.ranks) {
    const std::string* const own = own_devices(rank);
    const std::string list = own != nullptr ? *own : of_host;
    // In an elastic job, other ranks of this host may have run before.
    const int index = has_programs ? placed[list]++ : rank.local_rank;
    auto gpus = gpus_of(list, sharing[list], index, order);
    if (!gpus) {
      const bool is_set = own != nullptr || given != nullptr;
      return std::move(gpus).error().with_context(
          "--gpus-per-rank " + order.gpus_per_rank +
          (is_set ? " (" + std::string(kDevices) + "=" + list + ")" : ""));
    }
    if (gpus->empty()) continue;
    const auto list_of_rank = split(*gpus, ',');
    for (const std::string_view gpu : list_of_rank) {
      const auto [other, is_free] = user.emplace(gpu, rank.rank);
      if (is_free || order.gpus_per_rank == "auto") continue;
      return make_error(ErrorCode::kUsage, "--gpus-per-rank " + order.gpus_per_rank + ": rank " +
                                               std::to_string(other->second) + " and rank " +
                                               std::to_string(rank.rank) + " would share GPU " +
                                               std::string(gpu));
    }
    std::erase_if(rank.environment, [](const auto& each) { return each.first == kDevices; });
    placement.notes.push_back("rank " + std::to_string(rank.rank) + ": " + std::string(kDevices) +
                              "=" + *gpus);
    if (own_value(rank, kJaxDevices) == nullptr &&
        find_variable(order, machine, kJaxDevices) == nullptr) {
      give_all_to_jax(rank, list_of_rank.size());
    }
    rank.environment.emplace_back(kDevices, *std::move(gpus));
  }
  if (user.empty()) {
    placement.notes.push_back("--gpus-per-rank: there are no GPUs here, nothing is set");
  }
  return Ok{};
}

}  // namespace

Result<RankPlacement> place_ranks(HostOrder& order, const char* const* machine_environment) {
  RankPlacement placement;
  const bool counts = order.bind == "none" || order.bind == "auto";
  const std::vector<CpuPlace> cpus = usable_cpu_places(order.bind == kL3Mode ? CpuDetail::kCaches
                                                       : counts              ? CpuDetail::kCounts
                                                                             : CpuDetail::kPlaces);
  // Before anything is added to the order: a host that lacks the CPUs starts nothing.
  auto binding = plan_binding(cpus, static_cast<int>(order.ranks.size()), order.bind);
  if (!binding) return std::move(binding).error();
  placement.binding = std::move(*binding);
  limit_threads(order, machine_environment, cpus.size(), placement);
  if (const Status given = give_gpus(order, machine_environment, placement); !given) {
    return make_error(ErrorCode::kNotFound, given.error().message);
  }
  for (const RankOrder& rank : order.ranks) {
    const auto local = static_cast<std::size_t>(rank.local_rank);
    if (local >= placement.binding.cpus.size() || placement.binding.cpus[local].empty()) continue;
    const auto& own = placement.binding.cpus[local];
    placement.notes.push_back("rank " + std::to_string(rank.rank) +
                              (own.size() == 1 ? ": CPU " : ": CPUs ") + format_cpu_list(own) +
                              " (" + placement.binding.why + ")");
  }
  return placement;
}

}  // namespace hora::launcher
