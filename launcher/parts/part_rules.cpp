// SPDX-License-Identifier: Apache-2.0
#include "launcher/parts/part_rules.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <string>

#include "launcher/failures/failure_code.h"
#include "launcher/plan/plan.h"
#include "rendezvous/base/text.h"
#include "rendezvous/contract/worker_env.h"

namespace hora::launcher {

std::uint64_t unpacked_bytes(const VendorPart& part) {
  return std::accumulate(
      part.files.begin(), part.files.end(), std::uint64_t{0},
      [](std::uint64_t sum, const PartFile& each) { return sum + each.file.size_bytes; });
}

// Four things meet here: what the user wants, what this machine has, what the host has, and whether
// the host is this machine. The words of each refusal name the first three, since a user can change
// any of them.

namespace {

constexpr std::array<std::pair<std::string_view, VendorMode>, 3> kModes{
    {{"auto", VendorMode::kAuto}, {"site", VendorMode::kSite}, {"ship", VendorMode::kShip}}};

bool is_there(const Hello& host, const std::string& soname) {
  return std::any_of(host.libraries.begin(), host.libraries.end(), [&](const HostLibrary& each) {
    return each.soname == soname && each.fault.empty();
  });
}

// A host without a driver needs no NCCL, and nothing is said about it.
bool has_use_for(const VendorNeed& need, const Hello& host) {
  return (!need.with_gpu || host.gpus > 0) &&
         std::all_of(need.with.begin(), need.with.end(),
                     [&host](const std::string& soname) { return is_there(host, soname); });
}

// "libmpi.so.40 was not found"; empty: the host has all that is needed.
std::string what_is_missing(const VendorNeed& need, const Hello& host) {
  for (const std::string& soname : need.sonames) {
    const auto known =
        std::find_if(host.libraries.begin(), host.libraries.end(),
                     [&soname](const HostLibrary& each) { return each.soname == soname; });
    if (known == host.libraries.end()) return soname + " was not looked for";
    if (!known->fault.empty()) return known->fault;
  }
  return {};
}

// Why this machine's cannot be used there; empty: it can.
std::string why_not_sent(const VendorNeed& need, const Hello& host) {
  if (!need.part) return need.why_no_part;
  for (const std::string& soname : need.part->needs) {
    if (!is_there(host, soname)) return "this machine's needs " + soname + " of the host";
  }
  NeededPart unconditional;
  unconditional.least_glibc = need.part->least_glibc;
  if (is_needed(unconditional, host)) return {};
  return "this machine's needs glibc " + need.part->least_glibc + ", and the host has " +
         (host.c_library == "none" ? "no glibc" : host.c_library);
}

std::string install_advice(const VendorNeed& need) {
  return "install " + need.name + " there (" + need.package + ")";
}

}  // namespace

Result<VendorMode> vendor_mode(const EnvironmentList& environment, std::string_view variable) {
  const auto set = std::find_if(environment.begin(), environment.end(),
                                [variable](const auto& each) { return each.first == variable; });
  if (set == environment.end() || set->second.empty()) return VendorMode::kAuto;
  for (const auto& [name, mode] : kModes) {
    if (set->second == name) return mode;
  }
  return make_error(ErrorCode::kUsage, std::string(variable) + "=" + quote(set->second) +
                                           ": expected auto, site or ship");
}

std::string_view mode_name(VendorMode mode) {
  for (const auto& [name, each] : kModes) {
    if (each == mode) return name;
  }
  return "";
}

std::vector<std::string> libraries_of(const VendorNeed& need) {
  std::vector<std::string> all = need.sonames;
  all.insert(all.end(), need.with.begin(), need.with.end());
  return all;
}

// The condition on glibc stays in every mode: files that no program of a host can load are not
// worth sending, and why_unfit() or the warning says so.
std::optional<NeededPart> needed_part(const VendorNeed& need) {
  if (need.mode == VendorMode::kSite || !need.part) return std::nullopt;
  NeededPart part;
  part.hash = need.part->hash;
  part.least_glibc = need.part->least_glibc;
  part.with_gpu = need.with_gpu;
  part.with = need.with;
  part.with.insert(part.with.end(), need.part->needs.begin(), need.part->needs.end());
  if (need.mode == VendorMode::kAuto) part.lacks = need.sonames;
  return part;
}

bool uses_sent(const VendorNeed& need, const Hello& host) {
  const auto part = needed_part(need);
  return part && is_needed(*part, host);
}

std::optional<Failure> why_unfit(const VendorNeed& need, const Hello& host, bool is_remote) {
  // In auto a host may lack what the agent can see: the program may still find a library of its
  // own, by the run path of another library or by dlopen() with a path. It gets a warning instead.
  // This machine's own is what it would be sent.
  const bool may_be_sent = is_remote && need.mode != VendorMode::kSite;
  if (need.mode == VendorMode::kAuto || !has_use_for(need, host)) return std::nullopt;
  if (need.is_optional && need.mode == VendorMode::kSite) return std::nullopt;
  const std::string missing = may_be_sent ? why_not_sent(need, host) : what_is_missing(need, host);
  if (missing.empty()) return std::nullopt;
  const std::string setting = need.variable + "=" + std::string(mode_name(need.mode));
  if (may_be_sent) {
    return Failure{std::string(failure::kLibrary),
                   need.name + " cannot be sent to the host (" + setting + "): " + missing,
                   install_advice(need) + " and set " + need.variable + "=auto", ""};
  }
  return Failure{
      std::string(failure::kLibrary),
      "the host has no " + need.name + " that programs can load (" + setting + "): " + missing,
      install_advice(need) +
          ", name its folder in LD_LIBRARY_PATH, or let horarun send this machine's: " +
          need.variable + "=auto",
      ""};
}

// In the other modes a host that lacks the library does not get this far. Each rank tries the
// optional ones and reports what is missing: a warning in every job would only annoy where programs
// bring their own library.
std::string unfit_warning(const VendorNeed& need, const Hello& host, bool is_remote) {
  if (need.mode != VendorMode::kAuto || need.is_optional || !has_use_for(need, host)) return {};
  if (is_remote && uses_sent(need, host)) return {};
  const std::string missing = what_is_missing(need, host);
  if (missing.empty()) return {};
  std::string text = "no " + need.name + " was found that programs can load: " + missing;
  if (is_remote) text += "; none is sent: " + why_not_sent(need, host);
  return text;
}

std::string plan_text(const VendorNeed& need) {
  const std::string setting = " (" + need.variable + "=" + std::string(mode_name(need.mode)) + ")";
  if (!need.part && need.is_optional) return {};
  if (need.mode == VendorMode::kSite) return "the host's" + setting;
  if (!need.part) return "the host's; none can be sent: " + need.why_no_part + setting;
  const std::string others = need.with.empty() ? "" : " with " + join(need.with, " and ");
  return (need.mode == VendorMode::kShip
              ? "sent to other machines" + others + ": "
              : "the host's; where there is none" + (others.empty() ? "" : ", on hosts" + others) +
                    ", sent: ") +
         need.part->origin + setting;
}

// When in doubt a part is shipped: it costs a fraction of a second once per host, while a part that
// is missing can end a job.

namespace {

struct Job {
  const JobSpec& spec;
  std::string backends;  // what HORA_BACKENDS and HOROVOD_CPU_OPERATIONS say, in lower case
};

Shipping yes_if(bool condition) { return condition ? Shipping::kYes : Shipping::kNo; }

// Also after a minus: a part that is refused does no harm.
bool names(const Job& job, std::string_view backend) {
  for (std::size_t at = 0; (at = job.backends.find(backend, at)) != std::string::npos; ++at) {
    // The end of another name is none: "nccl".
    const char before = at == 0 ? ' ' : job.backends[at - 1];
    if (before < 'a' || before > 'z') return true;
  }
  return false;
}

// A single process has no peers.
bool has_one_rank(const JobSpec& spec) {
  if (spec.elastic || spec.by_mpirun) return false;
  if (spec.num_proc != 0) return spec.num_proc == 1;
  return spec.hosts.size() == 1 && spec.hosts.front().slots == 1;
}

// What libhora has itself is better, unless it is refused.
Shipping gloo(const Job& job) { return yes_if(names(job, "gloo") || names(job, "-tcp")); }

// The module looks at MPI only in processes that an MPI launcher, or PMI, has introduced to each
// other.
Shipping mpi(const Job& job) {
  return yes_if(job.spec.by_mpirun || !job.spec.pmi.empty() || names(job, "mpi"));
}

Shipping ccl(const Job& job) { return yes_if(names(job, "ccl")); }
Shipping nccl(const Job& job) { return names(job, "nccl") ? Shipping::kYes : Shipping::kToGpus; }
Shipping tls(const Job& job) { return yes_if(job.spec.rendezvous_tls); }
Shipping pmi(const Job& job) { return yes_if(!job.spec.pmi.empty()); }

// hora-smoke and hora-perf, also as words of a shell's command.
Shipping tools(const Job& job) {
  const auto is_tool = [](const std::string& word) {
    return word.find("hora-smoke") != std::string::npos ||
           word.find("hora-perf") != std::string::npos;
  };
  const auto commands = commands_of(job.spec);
  return yes_if(std::any_of(commands.begin(), commands.end(), [&is_tool](const auto& words) {
    return std::any_of(words.begin(), words.end(), is_tool);
  }));
}

Shipping never(const Job&) { return Shipping::kNo; }
Shipping always(const Job&) { return Shipping::kYes; }

enum class Doctor { kNo, kYes, kWithRuntime, kWithRuntimeToGpus };

struct Rule {
  std::string_view part;
  Shipping (*job)(const Job&);
  Doctor doctor;
};

constexpr Rule kRules[] = {
    {"core", always, Doctor::kWithRuntime},      // libhora, the Python packages
    {"gloo", gloo, Doctor::kNo},                 // tensors over TCP, by another library
    {"mpi", mpi, Doctor::kWithRuntime},          // tensors through the site's MPI
    {"ccl", ccl, Doctor::kNo},                   // tensors through the host's oneCCL
    {"nccl", nccl, Doctor::kWithRuntimeToGpus},  // tensors between GPUs
    {"tls", tls, Doctor::kNo},                   // --rendezvous-tls
    {"pmi", pmi, Doctor::kNo},                   // the servers of --pmi
    {"tools", tools, Doctor::kNo},               // hora-smoke, hora-perf
    {"doctor", never, Doctor::kYes},             // hora-doctor, hora-selftest
};

const Rule* find_rule(std::string_view part) {
  for (const Rule& rule : kRules) {
    if (rule.part == part) return &rule;
  }
  return nullptr;
}

// Calls take(name, value) for what the ranks' environment is made of, the later ones winning.
template <typename Take>
void for_each_variable(const JobSpec& spec, const EnvironmentList& environment, const Take& take) {
  for (const auto& [name, value] : environment) take(name, value);
  for (const auto& [name, value] : spec.variables) take(name, value);
  for (const Program& program : spec.programs) {
    for (const auto& [name, value] : program.variables) take(name, value);
  }
  for (const auto& [name, value] : spec.knobs) take(name, value);
}

// The library ignores case in these lists, too.
void add_value(std::string& text, const std::string& name, const std::string& value) {
  if (name != "HORA_BACKENDS" && name != rendezvous::env::kCpuOperations) return;
  text += ' ';
  for (const char c : value) text += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

// As ranks read it (collectives/runtime/backend_pool.cpp): names, or, with a minus, those that are
// left out.
bool list_allows(std::string_view list, std::string_view backend) {
  bool names_some = false;
  for (std::string_view item : split(list, ',')) {
    item = trim(item);
    if (item.empty()) continue;
    if (item == backend) return true;
    if (item.front() != '-') names_some = true;
    if (item.front() == '-' && item.substr(1) == backend) return false;
  }
  return !names_some;
}

}  // namespace

bool may_use_nccl(const JobSpec& spec, const EnvironmentList& environment) {
  if (has_one_rank(spec)) return false;
  Job job{spec, {}};
  const auto take = [&job](const std::string& name, const std::string& value) {
    if (name != "HORA_BACKENDS") return;
    job.backends.clear();
    add_value(job.backends, name, value);
  };
  for_each_variable(spec, environment, take);
  return list_allows(job.backends, "nccl");
}

Shipping shipping_for_job(std::string_view part, const JobSpec& spec,
                          const EnvironmentList& environment) {
  const Rule* rule = find_rule(part);
  if (rule == nullptr) return Shipping::kYes;
  Job job{spec, {}};
  for_each_variable(spec, environment, [&job](const std::string& name, const std::string& value) {
    add_value(job.backends, name, value);
  });
  return rule->job(job);
}

Shipping shipping_for_doctor(std::string_view part, bool with_runtime) {
  const Rule* rule = find_rule(part);
  const Doctor need = rule == nullptr ? Doctor::kWithRuntime : rule->doctor;
  switch (need) {
    case Doctor::kNo:
      return Shipping::kNo;
    case Doctor::kYes:
      return Shipping::kYes;
    case Doctor::kWithRuntime:
      return yes_if(with_runtime);
    case Doctor::kWithRuntimeToGpus:
      break;
  }
  return with_runtime ? Shipping::kToGpus : Shipping::kNo;
}

}  // namespace hora::launcher
