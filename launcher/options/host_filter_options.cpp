// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/host_filter_options.h"

#include <algorithm>
#include <optional>
#include <string>

#include "launcher/plan/host_filter.h"
#include "launcher/text/usage_error.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

constexpr std::string_view kDevices = "CUDA_VISIBLE_DEVICES";

// The user's value would replace ours, which is what the option is about.
bool sets_devices(const std::vector<EnvironmentVariable>& variables) {
  return std::any_of(variables.begin(), variables.end(),
                     [](const EnvironmentVariable& each) { return each.name == kDevices; });
}

}  // namespace

Status read_host_filter(const OptionValues& values, JobSpec& job) {
  const bool includes = values.has("--include");
  if (!includes && !values.has("--exclude")) return Ok{};
  const char* const option = includes ? "--include" : "--exclude";
  // A list that leaves out a host which never comes would have no effect, and nobody would notice.
  for (const char* other : {"--host-discovery-script", "--listen"}) {
    if (values.has(other)) {
      return usage(std::string(option) + " cannot be used with " + other +
                   ": which hosts there are is not known before");
    }
  }
  auto terms = parse_host_terms(values.joined(option, "@"), option);
  if (!terms) return std::move(terms).error();
  // --include localhost:0,2 needs no -H.
  const bool is_here = job.hosts.empty();
  if (is_here) job.hosts = {Host{"localhost", "", {}}};
  const auto slots = parse_int<int>(values.text("--slots-per-host"));
  auto hosts =
      includes ? include_hosts(job.hosts, *terms, slots) : exclude_hosts(job.hosts, *terms, slots);
  if (!hosts) return std::move(hosts).error();
  job.hosts = std::move(*hosts);
  // The whole of this machine is what a job without hosts has, with as many slots as it needs.
  if (is_here && job.hosts.front().gpus.empty()) job.hosts.clear();
  return Ok{};
}

Status check_host_filter(const JobSpec& job) {
  const bool has_gpus = std::any_of(job.hosts.begin(), job.hosts.end(),
                                    [](const Host& host) { return !host.gpus.empty(); });
  if (!has_gpus) return Ok{};
  constexpr std::string_view kWhat = "GPUs of --include or --exclude cannot be used with ";
  // Slots of elastic jobs come and go; which GPU is whose is not settled once for all. mpirun gives
  // its ranks one environment on all hosts.
  if (job.elastic) return usage(std::string(kWhat) + "elastic jobs");
  if (job.by_mpirun) return usage(std::string(kWhat) + "--mpi");
  bool sets = sets_devices(job.variables);
  for (const Program& program : job.programs) sets = sets || sets_devices(program.variables);
  if (sets) return usage(std::string(kWhat) + "-x " + std::string(kDevices) + ", which they set");
  return Ok{};
}

}  // namespace hora::launcher
