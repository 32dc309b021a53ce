// SPDX-License-Identifier: Apache-2.0
// When in doubt a part is shipped: it costs a fraction of a second once per host, while a part that
// is missing can end a job.
#include "launcher/build/part_rules.h"

#include <algorithm>
#include <string>

#include "launcher/plan/programs.h"
#include "rendezvous/base/text.h"
#include "rendezvous/contract/worker_env.h"

namespace hora::launcher {

namespace {

struct Job {
  const JobSpec& spec;
  std::string backends;  // what HORA_BACKENDS and HOROVOD_CPU_OPERATIONS say, in lower case
};

Shipping yes_if(bool condition) { return condition ? Shipping::kYes : Shipping::kNo; }

// Also behind a minus: a part that is refused does no harm.
bool names(const Job& job, std::string_view backend) {
  return job.backends.find(backend) != std::string::npos;
}

// One process alone has nobody to talk to.
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
