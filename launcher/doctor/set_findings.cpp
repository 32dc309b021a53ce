// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>

#include "launcher/doctor/findings.h"
#include "launcher/network/host_addresses.h"
#include "rendezvous/base/text.h"

namespace hora::launcher::doctor {

// Judges hosts as a set: their differences, and hosts that are one machine.

namespace {

struct Trait {
  std::string_view name;
  std::string_view path;
  enum class Of { kMachine, kSoftware, kTrials } of;
  Severity severity;
  std::string_view why;
};

// The fingerprint of a host: the traits on which hosts should agree.
constexpr Trait kTraits[] = {
    {"processor", "machine", Trait::Of::kMachine, Severity::kNote,
     "compiled programs need a build for each; scripts and the runtime run on all"},
    {"operating system", "os", Trait::Of::kMachine, Severity::kNote,
     "libraries of the system differ"},
    {"kernel", "kernel", Trait::Of::kMachine, Severity::kNote, "drivers and limits may differ"},
    {"CPU", "cpu.model", Trait::Of::kMachine, Severity::kNote, "the slowest host sets the pace"},
    {"usable CPUs", "cpu.usable", Trait::Of::kMachine, Severity::kNote,
     "the slowest host sets the pace"},
    {"NUMA nodes", "cpu.numa_nodes", Trait::Of::kMachine, Severity::kNote, "bindings differ"},
    {"number of GPUs", "gpus.devices", Trait::Of::kMachine, Severity::kWarning,
     "ranks without a GPU of their own"},
    {"GPU driver", "gpus.driver", Trait::Of::kMachine, Severity::kWarning,
     "NCCL hangs or fails between drivers that do not fit"},
    {"glibc", "glibc", Trait::Of::kSoftware, Severity::kNote,
     "a program built on the newer one may not start"},
    {"Python", "python.version", Trait::Of::kSoftware, Severity::kWarning,
     "pickles and compiled modules may not fit"},
    {"Python's path", "python.path", Trait::Of::kSoftware, Severity::kNote,
     "another environment may be meant"},
    {"CUDA of torch", "python.torch_cuda", Trait::Of::kSoftware, Severity::kWarning,
     "kernels and NCCL differ"},
    {"MPI", "mpi.version", Trait::Of::kTrials, Severity::kWarning,
     "its libraries do not talk to each other"},
    {"NCCL", "nccl.version", Trait::Of::kTrials, Severity::kWarning,
     "ranks whose NCCL differs fail or hang when they connect"},
    {"CUDA of the driver", "driver.cuda", Trait::Of::kTrials, Severity::kNote,
     "a program may run on one alone"},
};

// Only packages whose versions ranks should share; comparing all of them would bury these.
constexpr std::string_view kPackages[] = {"torch",
                                          "tensorflow",
                                          "jax",
                                          "jaxlib",
                                          "numpy",
                                          "horovod",
                                          "mpi4py",
                                          "keras",
                                          "mxnet",
                                          "deepspeed",
                                          "nvidia-nccl-cu11",
                                          "nvidia-nccl-cu12",
                                          "nvidia-nccl-cu13"};

std::string found_text(const Json& value) {
  if (value.is_null()) return "none";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// Reports a trait with several values, such as "2.1 on a, b; 2.3 on c", the most common value
// first. The other hosts are the odd ones.
void compare(const Examination& set, const std::string& name, Severity severity,
             std::string_view why, const std::function<Json(const HostExamination&)>& value,
             std::vector<Finding>& out) {
  std::vector<std::pair<std::string, std::vector<std::string>>> groups;
  for (const HostExamination& host : set.hosts) {
    // A host that could not be examined has a finding of its own.
    if (host.failure || host.machine.is_null() || host.software.is_null()) continue;
    const std::string text = found_text(value(host));
    auto group =
        std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == text; });
    if (group == groups.end()) group = groups.insert(groups.end(), {text, {}});
    group->second.push_back(host.name);
  }
  if (groups.size() < 2) return;
  std::stable_sort(groups.begin(), groups.end(),
                   [](const auto& a, const auto& b) { return a.second.size() > b.second.size(); });
  std::string what = name + " differs: ";
  std::vector<std::string> odd;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const auto& [text, hosts] = groups[i];
    if (i > 0) what += "; ";
    what += text + " on " +
            (hosts.size() > 4 ? std::to_string(hosts.size()) + " hosts" : join(hosts, ", "));
    if (i > 0) odd.insert(odd.end(), hosts.begin(), hosts.end());
  }
  out.push_back({severity, "D_DIFFERS", odd, what, std::string(why), "make the hosts alike", {}});
}

// Each of them has its slots, and a job refuses the list.
void same_machine(const Examination& set, std::vector<Finding>& out) {
  for (std::size_t a = 0; a < set.hosts.size(); ++a) {
    for (std::size_t b = a + 1; b < set.hosts.size(); ++b) {
      const auto& left = set.hosts[a].hello;
      const auto& right = set.hosts[b].hello;
      if (!left || !right || !are_one_machine(*left, *right)) continue;
      out.push_back({Severity::kError,
                     "D_SAME_HOST",
                     {set.hosts[a].name, set.hosts[b].name},
                     set.hosts[a].name + " and " + set.hosts[b].name + " are one machine",
                     "a job with both is refused, since its slots would count twice",
                     "name it once, with all its slots",
                     {}});
    }
  }
}

// Reports the two clocks that differ most.
void clocks(const Examination& set, std::vector<Finding>& out) {
  const HostExamination* first = nullptr;
  const HostExamination* last = nullptr;
  for (const HostExamination& host : set.hosts) {
    if (!host.clock_offset_ms) continue;
    if (first == nullptr || *host.clock_offset_ms < *first->clock_offset_ms) first = &host;
    if (last == nullptr || *host.clock_offset_ms > *last->clock_offset_ms) last = &host;
  }
  if (first == nullptr || first == last) return;
  const double apart = *last->clock_offset_ms - *first->clock_offset_ms;
  // The measurement itself may be wrong by this much.
  if (apart - first->clock_error_ms - last->clock_error_ms < 100) return;
  char text[64];
  std::snprintf(text, sizeof text, "%.0f ms apart", apart);
  out.push_back({Severity::kNote,
                 "D_CLOCKS",
                 {first->name, last->name},
                 "the clocks of " + first->name + " and " + last->name + " are " + text,
                 "times in logs of different hosts cannot be compared",
                 "synchronise them: chronyc tracking",
                 {}});
}

}  // namespace

std::vector<Finding> set_findings(const Examination& examination) {
  std::vector<Finding> out = link_findings(examination);
  same_machine(examination, out);
  clocks(examination, out);
  for (const Trait& trait : kTraits) {
    compare(
        examination, std::string(trait.name), trait.severity, trait.why,
        [&](const HostExamination& host) {
          return member(trait.of == Trait::Of::kMachine    ? host.machine
                        : trait.of == Trait::Of::kSoftware ? host.software
                                                           : host.selftests,
                        trait.path);
        },
        out);
  }
  for (const std::string_view package : kPackages) {
    compare(
        examination, "the version of " + std::string(package), Severity::kWarning,
        "ranks that run different versions disagree about formats and collectives",
        [&](const HostExamination& host) {
          const Json& packages = member(host.software, "python.packages");
          const auto found =
              packages.is_object() ? packages.find(std::string(package)) : packages.end();
          return packages.is_object() && found != packages.end() ? *found : Json();
        },
        out);
  }
  return out;
}

// Judges the links between hosts.
// There is no absolute standard for a network, so a link is compared with the median of the set.
// Also the interfaces that the user has chosen for NCCL.

namespace {

// With fewer links, the median means nothing.
constexpr std::size_t kLeastLinks = 4;
// In multiples of the median.
constexpr double kFarOff = 8;
// Below 2 ms, a multiple of the median is only noise.
constexpr double kLeastLate_us = 2'000;

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

struct Link {
  std::size_t from, to;
  double rtt_us, mbit_s;
};

bool is_measured(const Json& answer) {
  return member(answer, "error").is_null() && member(answer, "rtt_us").is_number() &&
         member(answer, "mbit_s").is_number();
}

// The words of NCCL_SOCKET_IFNAME: beginnings of names, or after '=' whole ones; after '^' those
// that NCCL must not take. NCCL's own list, which leaves out lo, does not count then.
class NcclInterfaces {
 public:
  explicit NcclInterfaces(std::string_view text) {
    excludes_ = text.starts_with('^');
    if (excludes_) text.remove_prefix(1);
    is_exact_ = text.starts_with('=');
    if (is_exact_) text.remove_prefix(1);
    words_ = split(text, ',');
  }

  bool selects(std::string_view name) const {
    const bool is_listed = std::any_of(words_.begin(), words_.end(), [&](std::string_view word) {
      word = word.substr(0, word.find(':'));  // "eth0:1" has a port
      return is_exact_ ? name == word : name.starts_with(word);
    });
    return is_listed != excludes_;
  }

 private:
  bool excludes_ = false;
  bool is_exact_ = false;
  std::vector<std::string_view> words_;
};

void nccl_interfaces(const Examination& set, std::vector<Finding>& out) {
  const std::string& value = set.nccl_interfaces;
  if (value.empty() || set.hosts.size() < 2) return;
  const NcclInterfaces chosen(value);
  const std::string setting = "NCCL_SOCKET_IFNAME=" + value;
  for (const HostExamination& host : set.hosts) {
    if (!host.hello || host.hello->interfaces.empty()) continue;
    std::vector<std::string> names;
    const InterfaceInfo* first = nullptr;
    for (const InterfaceInfo& nic : host.hello->interfaces) {
      if (std::find(names.begin(), names.end(), nic.name) == names.end()) {
        names.push_back(nic.name);
      }
      // With several, NCCL publishes the address of the first.
      if (first == nullptr && chosen.selects(nic.name)) first = &nic;
    }
    // Only NCCL reads it, for GPUs.
    const Json& gpus = member(host.machine, "gpus.devices");
    const bool has_gpus = gpus.is_number_integer() && gpus.get<int>() > 0;
    const Severity severity = has_gpus ? Severity::kError : Severity::kWarning;
    if (first == nullptr) {
      out.push_back({severity,
                     "D_NCCL_INTERFACE",
                     {host.name},
                     setting + " selects none of the interfaces " + join(names, ", "),
                     "NCCL fails there: 'no socket interface found'",
                     "unset it, or name an interface of every host, separated by commas",
                     {}});
    } else if (first->loopback) {
      out.push_back({severity,
                     "D_NCCL_INTERFACE",
                     {host.name},
                     setting + " selects " + first->name,
                     "NCCL gives the other hosts the address " + first->address +
                         ", at which they find only themselves",
                     value.starts_with('^')
                         ? "exclude it, too: " + setting + "," + first->name
                         : "name an interface that leads to the other hosts, or unset it",
                     {}});
    }
  }
}

// The links that could be measured, with the medians.
struct Links {
  std::vector<Link> all;
  double usual_us = 0;
  double usual_mbit_s = 0;

  explicit Links(const Examination& set) {
    std::vector<double> times, rates;
    for (std::size_t from = 0; from < set.hosts.size(); ++from) {
      for (const auto& [to, answer] : set.hosts[from].peers) {
        if (!is_measured(answer)) continue;
        all.push_back({from, static_cast<std::size_t>(to), answer["rtt_us"].get<double>(),
                       answer["mbit_s"].get<double>()});
        times.push_back(all.back().rtt_us);
        rates.push_back(all.back().mbit_s);
      }
    }
    usual_us = median(std::move(times));
    usual_mbit_s = median(std::move(rates));
  }

  bool slow(const Link& link) const {
    return all.size() >= kLeastLinks && link.mbit_s < usual_mbit_s / kFarOff;
  }
  bool late(const Link& link) const {
    return all.size() >= kLeastLinks && link.rtt_us > kFarOff * usual_us &&
           link.rtt_us > kLeastLate_us;
  }
};

void broken_way(const std::string& self, const std::string& other, const Json& answer,
                std::vector<Finding>& out) {
  const Json& error = member(answer, "error");
  if (error.is_string()) {
    out.push_back({Severity::kError,
                   "D_ROUTE",
                   {self, other},
                   self + " cannot connect to " + other + ": " + error.get<std::string>(),
                   "ranks connect to each other on ports that the system chooses; a firewall or a "
                   "missing route between hosts makes a job hang or fail at its first collective",
                   "allow TCP between the hosts, or select a network that works with "
                   "--network-interfaces; on " +
                       self + ": ping " + other,
                   {}});
    return;
  }
  const Json& mtu = member(answer, "mtu");
  const Json& passes = member(answer, "path_mtu");
  // Small packets pass and full ones do not: the classic fault of tunnels and jumbo frames.
  if (mtu.is_number_integer() && passes.is_number_integer() && passes.get<int>() < mtu.get<int>()) {
    const std::string least = std::to_string(passes.get<int>());
    out.push_back(
        {Severity::kError,
         "D_MTU",
         {self, other},
         "packets of " + std::to_string(mtu.get<int>()) + " bytes are dropped from " + self +
             " to " + other + ", the largest that does has " + least,
         "small messages arrive and large ones are lost: a job starts and then hangs",
         "the same MTU on every interface and switch on the way: ip link set DEV mtu " + least,
         {}});
  }
}

}  // namespace

std::vector<std::pair<int, int>> doubtful_ways(const Examination& examination) {
  const Links links(examination);
  std::vector<std::pair<int, int>> out;
  for (const Link& link : links.all) {
    if (links.slow(link) || links.late(link)) {
      out.emplace_back(static_cast<int>(link.from), static_cast<int>(link.to));
    }
  }
  return out;
}

// Each number for itself: a disturbance only makes a measurement worse.
Json better_of(const Json& first, Json second) {
  if (!is_measured(first)) return second;
  if (!is_measured(second)) return first;
  second["rtt_us"] = std::min(first["rtt_us"].get<double>(), second["rtt_us"].get<double>());
  second["mbit_s"] = std::max(first["mbit_s"].get<double>(), second["mbit_s"].get<double>());
  return second;
}

std::vector<Finding> link_findings(const Examination& examination) {
  std::vector<Finding> out;
  nccl_interfaces(examination, out);
  for (const HostExamination& host : examination.hosts) {
    for (const auto& [to, answer] : host.peers) {
      broken_way(host.name, examination.hosts[static_cast<std::size_t>(to)].name, answer, out);
    }
  }
  const Links links(examination);
  for (const Link& link : links.all) {
    const std::vector<std::string> both{examination.hosts[link.from].name,
                                        examination.hosts[link.to].name};
    const std::string pair = both[0] + " to " + both[1];
    char text[160];
    // One finding per link; a slow link usually has a high latency as well.
    if (links.slow(link)) {
      std::snprintf(text, sizeof text, ": %.0f Mbit/s where %.0f are usual in this set",
                    link.mbit_s, links.usual_mbit_s);
      out.push_back({Severity::kWarning,
                     "D_SLOW_LINK",
                     both,
                     pair + text,
                     "a ring is as fast as its slowest link",
                     "check errors and link speed: ethtool DEV",
                     {}});
    } else if (links.late(link)) {
      std::snprintf(text, sizeof text,
                    ": a round trip takes %.1f ms where %.1f are usual in this set",
                    link.rtt_us / 1000, links.usual_us / 1000);
      out.push_back({Severity::kWarning,
                     "D_LATENCY",
                     both,
                     pair + text,
                     "every small collective waits for several round trips",
                     "check for congestion or a detour: traceroute",
                     {}});
    }
  }
  return out;
}

}  // namespace hora::launcher::doctor
