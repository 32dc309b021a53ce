// SPDX-License-Identifier: Apache-2.0
// Applies the plan for CPUs, threads and GPUs to the ranks of this host. Each choice leaves a note,
// which --verbose prints.
#include "launcher/agent/rank_placement.h"

#include <algorithm>
#include <string_view>

#include "launcher/agent/cpu_topology.h"
#include "launcher/agent/host_facts.h"
#include "launcher/plan/cpu_list.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

constexpr std::string_view kThreads = "OMP_NUM_THREADS";
constexpr std::string_view kDevices = "CUDA_VISIBLE_DEVICES";

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
  const std::string threads = std::to_string(placement.binding.threads);
  order.environment.emplace_back(kThreads, threads);
  placement.notes.push_back(std::string(kThreads) + "=" + threads + " for " +
                            (order.ranks.size() == 1
                                 ? "1 rank"
                                 : "each of " + std::to_string(order.ranks.size()) + " ranks") +
                            " on " + counted(cpus, "CPU") + "; set it yourself for another number");
}

// A container or batch system may have given only some GPUs to this job; share those out.
void give_gpus(HostOrder& order, const char* const* machine, RankPlacement& placement) {
  if (order.gpus_per_rank.empty()) return;
  std::vector<std::string> visible;
  if (const char* given = find_variable(order, machine, kDevices)) {
    for (const std::string_view one : split(given, ',')) {
      if (!trim(one).empty()) visible.emplace_back(trim(one));
    }
  } else {
    for (int gpu = 0; gpu < count_gpus(); ++gpu) visible.push_back(std::to_string(gpu));
  }
  if (visible.empty()) {
    placement.notes.push_back("--gpus-per-rank: there are no GPUs here, nothing is set");
    return;
  }
  for (RankOrder& rank : order.ranks) {
    // In a job of several programs, -x may have chosen for those of one.
    if (std::any_of(rank.environment.begin(), rank.environment.end(),
                    [](const auto& variable) { return variable.first == kDevices; })) {
      continue;
    }
    const std::string own = plan_gpus(visible, static_cast<int>(order.ranks.size()),
                                      rank.local_rank, order.gpus_per_rank);
    rank.environment.emplace_back(kDevices, own);
    placement.notes.push_back("rank " + std::to_string(rank.rank) + ": " + std::string(kDevices) +
                              "=" + own);
  }
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
  give_gpus(order, machine_environment, placement);
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
