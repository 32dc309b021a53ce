// What is wrong between hosts, and what differs.  [pure]
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>

#include "launcher/doctor/findings.h"
#include "rendezvous/base/text.h"

namespace hora::launcher::doctor {

namespace {

struct Trait {
  std::string_view name;
  std::string_view path;
  bool of_software;
  Severity severity;
  std::string_view why;
};

// The fingerprint: hosts should agree on these.
constexpr Trait kTraits[] = {
    {"machine type", "machine", false, Severity::kError, "one program cannot run on both"},
    {"operating system", "os", false, Severity::kNote, "libraries of the system differ"},
    {"kernel", "kernel", false, Severity::kNote, "drivers and limits may differ"},
    {"CPU", "cpu.model", false, Severity::kNote, "the slowest host sets the pace"},
    {"usable CPUs", "cpu.usable", false, Severity::kNote, "the slowest host sets the pace"},
    {"NUMA nodes", "cpu.numa_nodes", false, Severity::kNote, "bindings differ"},
    {"number of GPUs", "gpus.devices", false, Severity::kWarning, "ranks without a GPU of their own"},
    {"GPU driver", "gpus.driver", false, Severity::kWarning,
     "NCCL hangs or fails between drivers that do not fit"},
    {"glibc", "glibc", true, Severity::kNote, "a program built on the newer one may not start"},
    {"Python", "python.version", true, Severity::kWarning, "pickles and compiled modules may not fit"},
    {"Python's path", "python.path", true, Severity::kNote, "another environment may be meant"},
    {"CUDA of torch", "python.torch_cuda", true, Severity::kWarning, "kernels and NCCL differ"},
};

constexpr std::string_view kPackages[] = {"torch",     "tensorflow", "jax",  "jaxlib", "numpy",
                                          "horovod",   "mpi4py",     "keras", "mxnet", "deepspeed",
                                          "nvidia-nccl-cu11", "nvidia-nccl-cu12", "nvidia-nccl-cu13"};

std::string text_of(const Json& value) {
  if (value.is_null()) return "none";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// "2.1 on a, b; 2.3 on c": the values, the commonest first.
void compare(const Examination& set, const std::string& name, Severity severity, std::string_view why,
             const std::function<Json(const HostExamination&)>& value, std::vector<Finding>& out) {
  std::vector<std::pair<std::string, std::vector<std::string>>> groups;
  for (const HostExamination& host : set.hosts) {
    if (host.failure || host.machine.is_null() || host.software.is_null()) continue;
    const std::string text = text_of(value(host));
    auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == text; });
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

void routes(const Examination& set, std::vector<Finding>& out) {
  std::vector<Link> links;
  for (std::size_t from = 0; from < set.hosts.size(); ++from) {
    for (const auto& [to, answer] : set.hosts[from].peers) {
      const std::string& other = set.hosts[static_cast<std::size_t>(to)].name;
      const std::string& self = set.hosts[from].name;
      const Json& error = member(answer, "error");
      if (error.is_string()) {
        out.push_back({Severity::kError, "D_ROUTE", {self, other},
                       self + " cannot connect to " + other + ": " + error.get<std::string>(),
                       "ranks connect to each other on ports that the system chooses; a firewall or a "
                       "missing route between hosts makes a job hang or fail at its first collective",
                       "open TCP between the hosts, or name a network that works by --network-interfaces; "
                       "on " + self + ": ping " + other, {}});
        continue;
      }
      links.push_back({from, static_cast<std::size_t>(to), member(answer, "rtt_us").get<double>(),
                       member(answer, "mbit_s").get<double>()});
      const Json& mtu = member(answer, "mtu");
      const Json& passes = member(answer, "path_mtu");
      if (mtu.is_number() && passes.is_number() && passes.get<int>() < mtu.get<int>()) {
        out.push_back({Severity::kError, "D_MTU", {self, other},
                       "packets of " + std::to_string(mtu.get<int>()) + " bytes do not pass from " + self +
                           " to " + other + ", the largest that does has " +
                           std::to_string(passes.get<int>()),
                       "small messages pass and large ones vanish: a job starts and then hangs",
                       "the same MTU on every interface and switch on the way: ip link set DEV mtu " +
                           std::to_string(passes.get<int>()), {}});
      }
    }
  }
  if (links.size() < 4) return;
  std::vector<double> times, rates;
  for (const Link& link : links) {
    times.push_back(link.rtt_us);
    rates.push_back(link.mbit_s);
  }
  const double usual_time = median(times);
  const double usual_rate = median(rates);
  for (const Link& link : links) {
    const std::string pair = set.hosts[link.from].name + " to " + set.hosts[link.to].name;
    const std::vector<std::string> both{set.hosts[link.from].name, set.hosts[link.to].name};
    char text[160];
    if (link.mbit_s < usual_rate / 8) {
      std::snprintf(text, sizeof text, ": %.0f Mbit/s where %.0f are usual in this set", link.mbit_s, usual_rate);
      out.push_back({Severity::kWarning, "D_SLOW_LINK", both, pair + text,
                     "a ring is as fast as its slowest link", "look for errors and the speed: ethtool DEV", {}});
    } else if (link.rtt_us > 8 * usual_time && link.rtt_us > 2'000) {
      std::snprintf(text, sizeof text, ": a round trip takes %.1f ms where %.1f are usual in this set",
                    link.rtt_us / 1000, usual_time / 1000);
      out.push_back({Severity::kWarning, "D_LATENCY", both, pair + text,
                     "every small collective waits so long several times",
                     "look for congestion or a detour: traceroute", {}});
    }
  }
}

void same_machine(const Examination& set, std::vector<Finding>& out) {
  for (std::size_t a = 0; a < set.hosts.size(); ++a) {
    for (std::size_t b = a + 1; b < set.hosts.size(); ++b) {
      const auto& left = set.hosts[a].hello;
      const auto& right = set.hosts[b].hello;
      if (!left || !right || left->boot_id.empty() || left->boot_id != right->boot_id) continue;
      out.push_back({Severity::kWarning, "D_SAME_HOST", {set.hosts[a].name, set.hosts[b].name},
                     set.hosts[a].name + " and " + set.hosts[b].name + " are one machine",
                     "its slots are counted twice", "name it once", {}});
    }
  }
}

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
  if (apart - first->clock_error_ms - last->clock_error_ms < 100) return;
  char text[64];
  std::snprintf(text, sizeof text, "%.0f ms apart", apart);
  out.push_back({Severity::kNote, "D_CLOCKS", {first->name, last->name},
                 "the clocks of " + first->name + " and " + last->name + " are " + text,
                 "times in logs of different hosts cannot be compared", "synchronise them: chronyc tracking", {}});
}

}  // namespace

std::vector<Finding> set_findings(const Examination& examination) {
  std::vector<Finding> out;
  routes(examination, out);
  same_machine(examination, out);
  clocks(examination, out);
  for (const Trait& trait : kTraits) {
    compare(examination, std::string(trait.name), trait.severity, trait.why,
            [&](const HostExamination& host) {
              return member(trait.of_software ? host.software : host.machine, trait.path);
            },
            out);
  }
  for (const std::string_view package : kPackages) {
    compare(examination, "the version of " + std::string(package), Severity::kWarning,
            "ranks that run different versions disagree about formats and collectives",
            [&](const HostExamination& host) {
              const Json& packages = member(host.software, "python.packages");
              const auto found = packages.is_object() ? packages.find(std::string(package)) : packages.end();
              return packages.is_object() && found != packages.end() ? *found : Json();
            },
            out);
  }
  return out;
}

}  // namespace hora::launcher::doctor
