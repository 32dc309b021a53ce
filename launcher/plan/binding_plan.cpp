// SPDX-License-Identifier: Apache-2.0
// Pure arithmetic: which CPUs and GPUs each rank of a host gets.
#include "launcher/plan/binding_plan.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "launcher/plan/core_list.h"
#include "launcher/plan/cpu_list.h"
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

// Neighbouring ranks go to the same domain (node, socket, cache), since they talk to each other
// most.
std::vector<std::vector<int>> share_domains(const std::vector<CpuPlace>& cpus, int ranks,
                                            int CpuPlace::*key) {
  std::vector<std::vector<int>> domains;
  for (auto& [domain, members] : group_by(cpus, key)) domains.push_back(std::move(members));
  std::vector<std::vector<int>> out;
  for (int rank = 0; rank < ranks; ++rank) {
    out.push_back(
        domains[static_cast<std::size_t>(rank) * domains.size() / static_cast<std::size_t>(ranks)]);
  }
  return out;
}

// Sockets stand in where the machine does not say which caches it has, as many virtual ones.
Binding bind_to_caches(std::vector<CpuPlace> cpus, int ranks) {
  const bool is_known =
      std::all_of(cpus.begin(), cpus.end(), [](const CpuPlace& cpu) { return cpu.l3 >= 0; });
  if (!is_known) {
    for (CpuPlace& cpu : cpus) cpu.l3 = cpu.package;
  }
  Binding binding;
  binding.cpus = share_domains(cpus, ranks, &CpuPlace::l3);
  const std::string count = std::to_string(group_by(cpus, &CpuPlace::l3).size());
  binding.why = is_known ? "each rank on the CPUs of one L3 cache, of " + count
                         : "each rank on its socket, of " + count +
                               "; which L3 caches there are is not known";
  return binding;
}

// One list is shared out in its order; of several, each local rank gets its own.
Result<Binding> bind_to_list(const std::vector<CpuPlace>& usable, int ranks,
                             std::string_view text) {
  auto lists = parse_cpu_lists(text, "--bind");
  if (!lists) return std::move(lists).error();
  const auto refuse = [](const std::string& message) {
    return make_error(ErrorCode::kUsage, "--bind cpu-list: " + message);
  };
  // The kernel would ignore a CPU outside of the job's cpuset, as long as one inside is left, and
  // the rank would run on fewer than its user thinks.
  std::vector<int> here;
  for (const CpuPlace& cpu : usable) here.push_back(cpu.cpu);
  for (const auto& list : *lists) {
    for (const int cpu : list) {
      if (std::find(here.begin(), here.end(), cpu) == here.end()) {
        return refuse("CPU " + std::to_string(cpu) +
                      " is not one that this job may use; it may use " + format_cpu_list(here));
      }
    }
  }
  const auto wanted = static_cast<std::size_t>(ranks);
  Binding binding;
  // Hosts differ in their number of ranks and have one option, so a host may leave lists unused.
  if (lists->size() > 1) {
    if (lists->size() < wanted) {
      return refuse(std::to_string(lists->size()) + " lists for " + std::to_string(ranks) +
                    " ranks of this host; expected one list for all, or one for each rank");
    }
    binding.cpus.assign(lists->begin(), lists->begin() + ranks);
    binding.why = "its list";
    return binding;
  }
  const std::vector<int>& all = lists->front();
  if (all.size() < wanted) {
    return refuse(counted(all.size(), "CPU") + " for " + std::to_string(ranks) +
                  " ranks of this host; list more, or start fewer ranks");
  }
  // Nobody lists CPUs one by one to have two ranks on one of them: that was refused above.
  for (std::size_t rank = 0; rank < wanted; ++rank) {
    binding.cpus.emplace_back(
        all.begin() + static_cast<std::ptrdiff_t>(rank * all.size() / wanted),
        all.begin() + static_cast<std::ptrdiff_t>((rank + 1) * all.size() / wanted));
  }
  binding.why = "its share of the list";
  return binding;
}

// The launcher has checked the syntax; which cores there are is known only here.
Result<Binding> bind_to_cores(const std::vector<CpuPlace>& usable, std::string_view text) {
  Binding binding;
  // No list has blanks inside, so empty parts are ranks without cores.
  for (const std::string_view list : split(text, ' ')) {
    std::vector<int>& cpus = binding.cpus.emplace_back();
    if (list.empty()) continue;
    auto found = Result<std::vector<int>>(std::vector<int>{});
    if (auto cores = parse_core_list(list, {"--rankfile", list, 0}, 0)) {
      found = cpus_of(*cores, usable);
    } else {
      found = std::move(cores).error();
    }
    if (!found) {
      return std::move(found).error().with_context("--rankfile: slot=" + std::string(list));
    }
    cpus = std::move(*found);
  }
  binding.why = "its cores in the rankfile";
  return binding;
}

// One number for all ranks, since they share the environment of their host: the smallest share's.
// Cores rather than CPUs: hardware threads do not help numeric code.
int fewest_cores(const std::vector<CpuPlace>& usable, const std::vector<std::vector<int>>& shares) {
  std::map<int, int> core_of;
  for (const CpuPlace& cpu : usable) core_of[cpu.cpu] = cpu.core;
  std::size_t fewest = usable.size();
  for (const auto& share : shares) {
    if (share.empty()) continue;  // a rank that is not bound
    std::set<int> cores;
    for (const int cpu : share) cores.insert(core_of[cpu]);
    fewest = std::min(fewest, cores.size());
  }
  return std::max(1, static_cast<int>(fewest));
}

constexpr std::string_view kMig = "MIG-";

bool is_uuid(std::string_view device) {
  return device.starts_with("GPU-") || device.starts_with(kMig);
}

// A UUID may be cut, as long as it is unambiguous.
bool is_one_gpu(std::string_view a, std::string_view b) {
  if (is_uuid(a) && is_uuid(b)) return a.starts_with(b) || b.starts_with(a);
  return !is_uuid(a) && !is_uuid(b) && parse_int<int>(a) == parse_int<int>(b);
}

}  // namespace

Result<Binding> plan_binding(const std::vector<CpuPlace>& usable, int ranks,
                             const std::string& mode) {
  Binding binding;
  if (usable.empty() || ranks < 1) return binding;
  const auto count = [&usable](int CpuPlace::*key) { return group_by(usable, key).size(); };
  const auto cores = count(&CpuPlace::core);
  const auto nodes = count(&CpuPlace::node);
  if (std::string_view(mode).starts_with(kCpuListMode)) {
    auto listed = bind_to_list(usable, ranks, std::string_view(mode).substr(kCpuListMode.size()));
    if (listed) listed->threads = fewest_cores(usable, listed->cpus);
    return listed;
  }
  if (std::string_view(mode).starts_with(kCoresMode)) {
    auto bound = bind_to_cores(usable, std::string_view(mode).substr(kCoresMode.size()));
    if (bound) bound->threads = fewest_cores(usable, bound->cpus);
    return bound;
  }
  if (mode == "core") {
    binding.cpus = share_cores(usable, ranks);
    binding.why = cores >= static_cast<std::size_t>(ranks) ? "each rank has its own cores"
                                                           : "fewer cores than ranks: they share";
  } else if (mode == kL3Mode) {
    binding = bind_to_caches(usable, ranks);
  } else if (mode == "socket") {
    binding.cpus = share_domains(usable, ranks, &CpuPlace::package);
    binding.why = "each rank on its socket, of " + std::to_string(count(&CpuPlace::package));
    // One rank alone may need the memory of all nodes, so "auto" leaves it unbound.
  } else if (mode == "numa" || (mode == "auto" && nodes > 1 && ranks > 1)) {
    binding.cpus = share_domains(usable, ranks, &CpuPlace::node);
    binding.why = "each rank on its NUMA node, of " + std::to_string(nodes);
  }
  binding.threads = std::max(1, static_cast<int>(cores) / ranks);
  return binding;
}

int threads_within(double cpus, int ranks, int threads) {
  const double share = cpus / std::max(1, ranks);
  return share >= threads ? threads : std::max(1, static_cast<int>(share));
}

Result<std::vector<std::string>> visible_gpus(std::string_view list) {
  std::vector<std::string> devices;
  for (const std::string_view word : split(list, ',')) {
    const std::string_view device = trim(word);
    const auto number = parse_int<int>(device);
    if (!is_uuid(device) && (!number || *number < 0)) break;
    for (const std::string& known : devices) {
      if (is_one_gpu(device, known)) {
        return make_error(ErrorCode::kUsage, "CUDA_VISIBLE_DEVICES=" + visible_line(list) +
                                                 " names GPU " + std::string(device) + " twice");
      }
    }
    devices.emplace_back(device);
  }
  return devices;
}

Result<std::string> plan_gpus(const std::vector<std::string>& visible, int ranks, int index,
                              const std::string& per_rank) {
  const bool shares = per_rank == "auto";
  const std::size_t all = visible.size();
  if (per_rank.empty() || ranks < 1 || (shares && all == 0)) return std::string();
  // A process uses one MIG device, however many it is shown.
  const bool is_mig = all > 0 && visible.front().starts_with(kMig);
  const auto at_most = is_mig ? 1 : std::max<std::size_t>(1, all / static_cast<std::size_t>(ranks));
  const std::size_t count = shares ? at_most : parse_int<std::size_t>(per_rank).value_or(1);
  if (!shares && is_mig && count > 1) {
    return make_error(ErrorCode::kUsage, "a process uses one MIG device, not " + per_rank);
  }
  const std::size_t first = static_cast<std::size_t>(index) * count;
  const int sharing = std::max(ranks, index + 1);
  const std::size_t wanted = static_cast<std::size_t>(sharing) * count;
  if (!shares && wanted > all) {
    return make_error(ErrorCode::kUsage, counted(sharing, "rank") + " of this host " +
                                             (sharing == 1 ? "needs " : "need ") +
                                             counted(wanted, "GPU") + ", and there " +
                                             (all == 1 ? "is " : "are ") + std::to_string(all));
  }
  std::vector<std::string> own;
  for (std::size_t i = 0; i < count; ++i) own.push_back(visible[(first + i) % all]);
  return join(own, ",");
}

}  // namespace hora::launcher
