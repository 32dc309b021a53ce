// SPDX-License-Identifier: Apache-2.0
// IBM Spectrum LSF: "Environment variables set for job execution" and blaunch(1). Not run on a real
// LSF.
#include "launcher/engines/host_counts.h"
#include "launcher/engines/registry.h"

namespace hora::launcher {

namespace {

std::vector<std::string> starter(const std::vector<std::string>& args) {
  std::vector<std::string> words{"blaunch"};
  words.insert(words.end(), args.begin(), args.end());
  words.emplace_back("{host}");
  words.emplace_back("{command}");
  return words;
}

// A line for each slot in the file; the variables hold the same, and are cut off in large jobs.
Result<std::vector<Host>> hosts_of(const EngineInputs& inputs) {
  const auto file = inputs.variable("LSB_DJOB_HOSTFILE");
  if (file && !file->empty()) {
    auto text = needed_file(inputs, "LSB_DJOB_HOSTFILE");
    if (!text) return std::move(text).error();
    return count_hosts(*text, "$LSB_DJOB_HOSTFILE");
  }
  auto pairs = needed_variable(inputs, "LSB_MCPU_HOSTS");
  if (!pairs) return std::move(pairs).error();
  return pair_hosts(*pairs, "$LSB_MCPU_HOSTS");
}

Result<Allocation> find(const EngineInputs& inputs, const std::vector<std::string>& args) {
  auto hosts = hosts_of(inputs);
  if (!hosts) return std::move(hosts).error();
  return Allocation{inputs.variable("LSB_JOBID").value_or(""), std::move(*hosts), starter(args)};
}

constexpr EngineDescriptor kDescriptor{.name = "lsf",
                                       .title = "LSF",
                                       .from = "`$LSB_DJOB_HOSTFILE`, else `$LSB_MCPU_HOSTS`",
                                       .how = "blaunch",
                                       .mark = "LSB_JOBID",
                                       .find = find};

}  // namespace

const EngineDescriptor* lsf_engine_descriptor() { return &kDescriptor; }

}  // namespace hora::launcher
