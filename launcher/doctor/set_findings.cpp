// SPDX-License-Identifier: Apache-2.0
// Judges hosts as a set: their differences, and hosts that are one machine.  [pure]
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>

#include "launcher/doctor/findings.h"
#include "launcher/protocol/machine_identity.h"
#include "rendezvous/base/text.h"

namespace hora::launcher::doctor {

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

std::string text_of(const Json& value) {
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
    const std::string text = text_of(value(host));
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
      out.push_back({Severity::kWarning,
                     "D_SAME_HOST",
                     {set.hosts[a].name, set.hosts[b].name},
                     set.hosts[a].name + " and " + set.hosts[b].name + " are one machine",
                     "its slots are counted twice",
                     "name it once",
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

}  // namespace hora::launcher::doctor
