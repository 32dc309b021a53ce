// SPDX-License-Identifier: Apache-2.0
// IBM Spectrum LSF: "Environment variables set for job execution" and blaunch(1). Not run on a real
// LSF.
#include "launcher/engines/engine.h"
#include "launcher/engines/registry.h"
#include "rendezvous/base/text.h"

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

// "EXIT TERM_RUNLIMIT: job killed after reaching LSF run time limit", "RUN -". A job that waits
// again, although this is inside of it, was taken off its hosts.
std::string verdict(std::string_view job, const EngineAnswer& answer) {
  if (answer.exit_code != 0) return "";
  const std::string_view text = trim(answer.text);
  const std::string_view state = text.substr(0, text.find_first_of(" \t\n"));
  if (state != "EXIT" && state != "ZOMBI" && state != "PEND") return "";
  const std::string_view reason = trim(text.substr(state.size()));
  return "job " + std::string(job) + " is " + std::string(state) +
         (reason.empty() || reason == "-" ? "" : ": " + std::string(reason));
}

Result<Allocation> find(const EngineInputs& inputs, const std::vector<std::string>& args) {
  auto hosts = hosts_of(inputs);
  if (!hosts) return std::move(hosts).error();
  Allocation found{inputs.variable("LSB_JOBID").value_or(""), std::move(*hosts), starter(args)};
  found.this_host = only_host(found.hosts);
  found.question = {"bjobs", "-noheader", "-o", "stat exit_reason", found.job};
  return found;
}

constexpr EngineDescriptor kDescriptor{.name = "lsf",
                                       .title = "LSF",
                                       .from = "`$LSB_DJOB_HOSTFILE`, else `$LSB_MCPU_HOSTS`",
                                       .how = "blaunch",
                                       .mark = "LSB_JOBID",
                                       .find = find,
                                       .verdict = verdict};

}  // namespace

const EngineDescriptor* lsf_engine_descriptor() { return &kDescriptor; }

}  // namespace hora::launcher
