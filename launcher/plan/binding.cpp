// SPDX-License-Identifier: Apache-2.0
#include "launcher/plan/binding.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "launcher/text/user_input.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

// The order of a list is kept, because the ranks of a host share it in that order: 8,0-3 gives the
// first of two ranks 8 and 0. Duplicates are errors; two ranks on one CPU can be had with two
// lists.

Result<std::vector<int>> parse_cpu_list(std::string_view list, std::string_view origin,
                                        std::string_view text, std::size_t at) {
  std::vector<int> cpus;
  for (const std::string_view item : split(list, ',')) {
    const auto wrong = [&](const std::string& message) {
      return spec_error({origin, text, 0}, at, message);
    };
    const std::size_t dash = item.find('-');
    const auto first = parse_int<int>(item.substr(0, dash));
    const auto last =
        dash == std::string_view::npos ? first : parse_int<int>(item.substr(dash + 1));
    // An empty item is an error, too: "0-3," is more likely cut short than meant.
    if (!first || !last || *first < 0) {
      return wrong("expected CPUs such as 0-3,8, found " + quote(item));
    }
    if (*last < *first) return wrong("the range " + quote(item) + " ends before it begins");
    if (*last >= kMostCpus) {
      return wrong("CPU " + std::to_string(*last) + " is too large; at most " +
                   std::to_string(kMostCpus - 1));
    }
    for (int cpu = *first; cpu <= *last; ++cpu) {
      if (std::find(cpus.begin(), cpus.end(), cpu) != cpus.end()) {
        return wrong("CPU " + std::to_string(cpu) + " is listed twice");
      }
      cpus.push_back(cpu);
    }
    at += item.size() + 1;
  }
  return cpus;
}

Result<std::vector<std::vector<int>>> parse_cpu_lists(std::string_view text,
                                                      std::string_view origin) {
  std::vector<std::vector<int>> lists;
  std::size_t at = 0;
  // Lists may overlap: a user who writes one for each rank has thought of each rank.
  for (const std::string_view list : split(text, ':')) {
    auto cpus = parse_cpu_list(list, origin, text, at);
    if (!cpus) return std::move(cpus).error();
    lists.push_back(std::move(*cpus));
    at += list.size() + 1;
  }
  return lists;
}

// As the kernel writes Cpus_allowed_list, so that people can compare the two.
std::string format_cpu_list(std::vector<int> cpus) {
  std::sort(cpus.begin(), cpus.end());
  cpus.erase(std::unique(cpus.begin(), cpus.end()), cpus.end());
  std::string out;
  for (std::size_t i = 0; i < cpus.size();) {
    std::size_t end = i;
    while (end + 1 < cpus.size() && cpus[end + 1] == cpus[end] + 1) ++end;
    if (!out.empty()) out += ',';
    out += std::to_string(cpus[i]);
    if (end > i) out += "-" + std::to_string(cpus[end]);
    i = end + 1;
  }
  return out;
}

// Pure arithmetic: which CPUs and GPUs each rank of a host gets.

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
  // Users do not list CPUs one by one to have two ranks on one of them: that was refused above.
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

// Numbers are logical, as in Open MPI: those of the kernel may have gaps and mix sockets.

namespace {

using Cores = std::vector<std::vector<int>>;  // the CPUs of each core

constexpr std::string_view kExpected =
    "expected cores such as 0-3, or cores of a socket such as 1:0,2 or 1:*";

// No machine has more; larger numbers are typos, and would overflow what counts cores.
std::optional<int> number(std::string_view text) {
  const auto value = parse_int<int>(text);
  if (!value || *value < 0 || *value >= kMostCpus) return std::nullopt;
  return value;
}

// "3", "0-3", "*"
std::optional<CoreRange> read_cores(std::string_view text) {
  if (text == "*") return CoreRange{};
  const std::size_t dash = text.find('-');
  const auto first = number(text.substr(0, dash));
  const auto last = dash == std::string_view::npos ? first : number(text.substr(dash + 1));
  if (!first || !last || *last < *first) return std::nullopt;
  return CoreRange{std::nullopt, *first, last};
}

// By socket, each with its cores, both in the order of the kernel's numbers, which may have gaps.
std::vector<Cores> sockets_of(const std::vector<CpuPlace>& usable) {
  std::map<int, std::map<int, std::vector<int>>> found;
  for (const CpuPlace& place : usable) found[place.package][place.core].push_back(place.cpu);
  std::vector<Cores> sockets;
  for (auto& [package, cores] : found) {
    Cores& socket = sockets.emplace_back();
    for (auto& [core, cpus] : cores) socket.push_back(std::move(cpus));
  }
  return sockets;
}

// Says how many there are: users count from 1, and containers show a part of the machine.
Error not_there(const std::string& what, std::size_t count, const std::string& of) {
  return make_error(ErrorCode::kUsage, what + " is not there; this job may use " +
                                           std::to_string(count) + " " + of + ", from 0");
}

}  // namespace

Result<std::vector<CoreRange>> parse_core_list(std::string_view list, const SpecLine& line,
                                               std::size_t at) {
  std::vector<CoreRange> out;
  for (const std::string_view part : split(list, ';')) {
    // Kept from one item to the next: "0:0,2" are two cores of socket 0.
    std::optional<int> socket;
    for (const std::string_view item : split(part, ',')) {
      const std::size_t colon = item.find(':');
      if (colon != std::string_view::npos) {
        socket = number(item.substr(0, colon));
        if (!socket) return spec_error(line, at, kExpected);
      }
      const std::size_t begin = colon == std::string_view::npos ? 0 : colon + 1;
      auto cores = read_cores(item.substr(begin));
      if (!cores) return spec_error(line, at + begin, kExpected);
      cores->socket = socket;
      out.push_back(*cores);
      at += item.size() + 1;  // with the separator
    }
  }
  return out;
}

Result<std::vector<int>> cpus_of(const std::vector<CoreRange>& cores,
                                 const std::vector<CpuPlace>& usable) {
  const std::vector<Cores> sockets = sockets_of(usable);
  // The cores of all sockets in a row, for lists without a socket.
  Cores all;
  for (const Cores& socket : sockets) all.insert(all.end(), socket.begin(), socket.end());
  std::vector<int> cpus;
  for (const CoreRange& range : cores) {
    const auto socket = static_cast<std::size_t>(range.socket.value_or(0));
    if (socket >= sockets.size()) {
      return not_there("socket " + std::to_string(socket), sockets.size(), "sockets");
    }
    const Cores& from = range.socket ? sockets[socket] : all;
    const auto end = range.last ? static_cast<std::size_t>(*range.last) + 1 : from.size();
    if (end > from.size()) {
      return not_there("core " + std::to_string(end - 1), from.size(),
                       range.socket ? "cores of socket " + std::to_string(socket) : "cores");
    }
    for (auto core = static_cast<std::size_t>(range.first); core < end; ++core) {
      cpus.insert(cpus.end(), from[core].begin(), from[core].end());
    }
  }
  // Ranges may overlap, as in "0-3,2".
  std::sort(cpus.begin(), cpus.end());
  cpus.erase(std::unique(cpus.begin(), cpus.end()), cpus.end());
  return cpus;
}

}  // namespace hora::launcher
