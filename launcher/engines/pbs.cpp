// SPDX-License-Identifier: Apache-2.0
// OpenPBS, PBS Professional and Torque: qsub(1B), pbs_tmrsh(8B), pbsdsh(1B). Not run on a real PBS.
//
// pbs_tmrsh (OpenPBS) and pbsdsh (Torque) start a task inside of the job on one host. It has no
// standard input of theirs, and its output is the job's: agents dial back.
#include "launcher/engines/engine.h"
#include "launcher/engines/registry.h"
#include "launcher/text/user_input.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

// One for each host, all at once: `$0` is the list, `$5` the nonce behind which a line for
// horarun's eyes stands (launcher/dial/dial_protocol.h). The command stands between "$h" and the
// task.
std::string loop_over_hosts(const std::string& command) {
  return "IFS=,; for h in $0; do { " + command +
         " /usr/bin/env HORA_STEP_HOST=\"$h\" \"$@\" </dev/null || echo \"HORA-$5 failed $h " +
         command.substr(0, command.find(' ')) + " ended with status $?\"; } & done; wait";
}

// Nothing: neither of the commands is here, or the folder that the hosts share is unknown.
std::optional<EngineStep> step_of(const EngineInputs& inputs,
                                  const std::vector<std::string>& args) {
  EngineStep step;
  std::string command;
  if (inputs.has_program("pbs_tmrsh")) {
    step.name = command = "pbs_tmrsh";
    for (const std::string& word : args) command += " " + quote_shell_words({word});
    command += " \"$h\"";
  } else if (inputs.has_program("pbsdsh")) {
    step.name = command = "pbsdsh";
    for (const std::string& word : args) command += " " + quote_shell_words({word});
    command += " -h \"$h\"";
  }
  step.folder = cache_folder(inputs);
  if (step.name.empty() || step.folder.empty()) return std::nullopt;
  step.start = {"/bin/sh", "-c", loop_over_hosts(command), "{hosts}"};
  step.host_text = "$HORA_STEP_HOST";
  // Output of a task would appear in the output of the job.
  step.setup = "exec >/dev/null 2>&1";
  return step;
}

// "    job_state = E" and "    comment = ...", of `qstat -f`.
std::string_view attribute(std::string_view text, std::string_view name) {
  for (const std::string_view each : split(text, '\n')) {
    const std::string_view line = trim(each);
    if (!line.starts_with(name)) continue;
    const std::string_view rest = trim(line.substr(name.size()));
    if (rest.starts_with('=')) return trim(rest.substr(1));
  }
  return {};
}

// While this is inside of the job, its state is R, or S for a moment. Any other one has come from
// outside: E for ending, F and C for finished, Q for one that waits again, because it was preempted
// or has lost a node.
std::string verdict(std::string_view job, const EngineAnswer& answer) {
  const std::string_view state = attribute(answer.text, "job_state");
  if (state.empty()) {
    const bool unknown = answer.text.find("Unknown Job Id") != std::string_view::npos ||
                         answer.text.find("has finished") != std::string_view::npos;
    return unknown ? std::string(trim(answer.text)) : "";
  }
  if (state == "R" || state == "S") return "";
  const std::string_view comment = attribute(answer.text, "comment");
  return "job " + std::string(job) + " has state " + std::string(state) +
         (comment.empty() ? "" : ": " + std::string(comment));
}

// A line for each slot, so that a host comes as often as it has slots.
Result<Allocation> find(const EngineInputs& inputs, const std::vector<std::string>& args) {
  auto text = needed_file(inputs, "PBS_NODEFILE");
  if (!text) return std::move(text).error();
  auto hosts = count_hosts(*text, "$PBS_NODEFILE");
  if (!hosts) return std::move(hosts).error();
  Allocation found{inputs.variable("PBS_JOBID").value_or(""), std::move(*hosts), {}};
  found.this_host = only_host(found.hosts);
  found.step = step_of(inputs, args);
  // What reaches a host that no task has dialled from.
  if (found.step) found.starter = {"ssh", "-q", "-o", "BatchMode=yes"};
  found.question = {"qstat", "-f", found.job};
  return found;
}

constexpr EngineDescriptor kDescriptor{
    .name = "pbs",
    .title = "PBS, Torque",
    .from = "`$PBS_NODEFILE`",
    .how = "pbs_tmrsh, else pbsdsh, else ssh: whichever is in `$PATH`",
    .mark = "PBS_JOBID",
    .find = find,
    .verdict = verdict};

}  // namespace

const EngineDescriptor* pbs_engine_descriptor() { return &kDescriptor; }

}  // namespace hora::launcher
