// SPDX-License-Identifier: Apache-2.0
// What torchrun, mpirun and Hydra say by host becomes slots, so that planning knows one kind of
// limit. A contradiction (more ranks than the slots that a host was given) is an error: whichever
// number won, half of the users would be surprised.
#include "launcher/options/slot_options.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "launcher/options/elastic_options.h"
#include "launcher/options/first_word.h"
#include "launcher/options/rankfile_options.h"
#include "launcher/text/usage_error.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

void read_slots(const OptionValues& values, JobSpec& job) {
  job.num_proc = values.count("-np").value_or(0);
  const std::string slots = values.text("--slots-per-host");
  job.slots_per_host_auto = slots == "auto";
  job.slots_per_host = parse_int<int>(slots);
}

// --nnodes: the first N hosts that may be used.
Status read_host_count(const OptionValues& values, JobSpec& job) {
  if (!values.has("--nnodes")) return Ok{};
  const std::string text = values.text("--nnodes");
  if (text.find(':') != std::string::npos) {
    return usage("--nnodes: expected one number of hosts, found " + quote(text) +
                 "; a job that may shrink and grow has --min-np and --max-np, in ranks");
  }
  const auto count = parse_int<int>(text);
  if (!count || *count < 1) {
    return usage("--nnodes: expected a number of hosts, 1 or more, found " + quote(text));
  }
  if (values.has("--host-discovery-script")) {
    return usage("--nnodes cannot be used with --host-discovery-script, whose hosts come and go");
  }
  // A host with 0 slots is listed and not used: it does not count as one of the N.
  auto& hosts = job.hosts;
  hosts.erase(
      std::remove_if(hosts.begin(), hosts.end(), [](const Host& h) { return h.slots == 0; }),
      hosts.end());
  // No hosts at all are this machine.
  const int offered = std::max<int>(static_cast<int>(hosts.size()), 1);
  if (*count > offered) {
    return usage("--nnodes " + text + " asks for " + text + " hosts, but there " +
                 (offered == 1 ? "is 1" : "are " + std::to_string(offered)) +
                 (hosts.empty() ? " (this machine); give hosts with -H or --hostfile" : ""));
  }
  if (!hosts.empty()) hosts.resize(static_cast<std::size_t>(*count));
  return Ok{};
}

// "srun -N 2 -n 4" are 4 ranks on 2 hosts.
Status check_nodes_of_srun(const OptionValues& values, const std::string& text,
                           const JobSpec& job) {
  std::int64_t offered = 0;
  for (const Host& host : job.hosts) offered += host.slots.value_or(0);
  if (job.num_proc <= offered || is_elastic(values) || job.hosts.empty()) return Ok{};
  return usage("-np " + std::to_string(job.num_proc) +
               " asks for more ranks than --nproc-per-node " + text + " gives " +
               counted(job.hosts.size(), "host") +
               " (-N is ranks per host; srun's -N is --nnodes)");
}

// --nproc-per-node: each host gets so many ranks, and has to have as many slots if it has a number.
Status read_ranks_per_host(const OptionValues& values, JobSpec& job) {
  if (!values.has("--nproc-per-node")) return Ok{};
  const std::string text = values.text("--nproc-per-node");
  const auto count = parse_int<int>(text);
  // torchrun calls it "gpu".
  const bool is_auto = text == "auto" || text == "gpu";
  if (!is_auto && (!count || *count < 1 || *count > kMaxSlotsPerHost)) {
    return usage("--nproc-per-node: expected a number of ranks from 1 to " +
                 std::to_string(kMaxSlotsPerHost) + ", or auto, found " + quote(text));
  }
  if (is_auto) {
    job.slots_per_host_auto = true;
    if (job.hosts.empty()) job.hosts = {Host{"localhost", "", {}}};
    return Ok{};
  }
  // Hosts that a discovery script will name have no slots yet; they get as many.
  job.slots_per_host = *count;
  if (job.hosts.empty() && !is_elastic(values)) job.hosts = {Host{"localhost", "", {}}};
  for (Host& host : job.hosts) {
    if (host.slots.value_or(*count) == 0) continue;  // listed, but not used
    if (host.slots.value_or(*count) < *count) {
      return usage("--nproc-per-node " + text + ": host " + host.name + " has " +
                   counted(*host.slots, "slot"));
    }
    host.slots = *count;
  }
  return check_nodes_of_srun(values, text, job);
}

// Pods that are to be made have ranks without a word.
Status check_there_are_ranks(const OptionValues& values, const ProcessInputs& inputs,
                             const JobSpec& job) {
  if (values.verb() == kVerbKubernetes) return Ok{};
  // A rankfile has both, and a file of programs has its number.
  const bool has_ranks = has_rankfile(values) || is_elastic(values) || values.has("--programs") ||
                         values.has("--multi-prog");
  if (job.num_proc > 0 || !job.hosts.empty() || has_ranks) return Ok{};
  const bool is_program = !values.has("--module") && !values.has("--smoke");
  const std::string answer = is_program ? answer_to_first_word(job.command, inputs) : "";
  if (!answer.empty()) return usage(answer);
  return usage(
      std::string(
          "-np is missing; give the number of ranks, or hosts with slots, such as -H a:2,b:2") +
      (is_program ? note_on_absence(job.command, inputs) : ""));
}

}  // namespace

Status read_slot_options(const OptionValues& values, const ProcessInputs& inputs, JobSpec& job) {
  read_slots(values, job);
  HORA_TRY(read_host_count(values, job));
  HORA_TRY(read_ranks_per_host(values, job));
  return check_there_are_ranks(values, inputs, job);
}

}  // namespace hora::launcher
