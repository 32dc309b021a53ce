// SPDX-License-Identifier: Apache-2.0
// Pure arithmetic: which CPUs and GPUs each rank of a host gets.
#include "launcher/plan/binding_plan.h"

#include <algorithm>
#include <map>
#include <set>

#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

std::map<int, std::vector<int>> group_by(const std::vector<CpuPlace>& cpus, int CpuPlace::*key) {
  std::map<int, std::vector<int>> groups;
  for (const CpuPlace& cpu : cpus) groups[cpu.*key].push_back(cpu.cpu);
  return groups;
}

// Gives each rank whole cores, as equal in number as possible. Ranks that outnumber the cores share
// them. A core is given with all its hardware threads: two ranks on one core slow each other down.
std::vector<std::vector<int>> share_cores(const std::vector<CpuPlace>& cpus, int ranks) {
  std::vector<std::vector<int>> cores;
  for (auto& [core, members] : group_by(cpus, &CpuPlace::core)) cores.push_back(std::move(members));
  std::vector<std::vector<int>> out(static_cast<std::size_t>(ranks));
  const std::size_t count = cores.size();
  for (std::size_t rank = 0; rank < out.size(); ++rank) {
    const std::size_t first = rank * count / out.size();
    // At least one core, so that surplus ranks share.
    const std::size_t last = std::max(first + 1, (rank + 1) * count / out.size());
    for (std::size_t core = first; core < last && core < count; ++core) {
      out[rank].insert(out[rank].end(), cores[core].begin(), cores[core].end());
    }
  }
  return out;
}

// Neighbouring ranks go to the same node, since they talk to each other most.
std::vector<std::vector<int>> share_nodes(const std::vector<CpuPlace>& cpus, int ranks) {
  std::vector<std::vector<int>> nodes;
  for (auto& [node, members] : group_by(cpus, &CpuPlace::node)) nodes.push_back(std::move(members));
  std::vector<std::vector<int>> out;
  for (int rank = 0; rank < ranks; ++rank) {
    out.push_back(
        nodes[static_cast<std::size_t>(rank) * nodes.size() / static_cast<std::size_t>(ranks)]);
  }
  return out;
}

}  // namespace

Binding plan_binding(const std::vector<CpuPlace>& usable, int ranks, const std::string& mode) {
  Binding binding;
  if (usable.empty() || ranks < 1) return binding;
  const auto cores = group_by(usable, &CpuPlace::core).size();
  const auto nodes = group_by(usable, &CpuPlace::node).size();
  // Cores rather than CPUs: hardware threads do not help numeric code.
  binding.threads = std::max(1, static_cast<int>(cores) / ranks);
  if (mode == "core") {
    binding.cpus = share_cores(usable, ranks);
    binding.why = cores >= static_cast<std::size_t>(ranks) ? "cores of its own for each rank"
                                                           : "fewer cores than ranks: they share";
    // One rank alone may need the memory of all nodes, so "auto" leaves it unbound.
  } else if (mode == "numa" || (mode == "auto" && nodes > 1 && ranks > 1)) {
    binding.cpus = share_nodes(usable, ranks);
    binding.why = "each rank on its NUMA node, of " + std::to_string(nodes);
  }
  return binding;
}

std::string plan_gpus(const std::vector<std::string>& visible, int ranks, int local_rank,
                      const std::string& per_rank) {
  if (visible.empty() || per_rank.empty() || ranks < 1) return "";
  const std::size_t all = visible.size();
  // With more ranks than GPUs, "auto" shares them round robin.
  const std::size_t count = per_rank == "auto"
                                ? std::max<std::size_t>(1, all / static_cast<std::size_t>(ranks))
                                : parse_int<std::size_t>(per_rank).value_or(1);
  std::vector<std::string> own;
  for (std::size_t i = 0; i < count; ++i) {
    own.push_back(visible[(static_cast<std::size_t>(local_rank) * count + i) % all]);
  }
  return join(own, ",");
}

}  // namespace hora::launcher
