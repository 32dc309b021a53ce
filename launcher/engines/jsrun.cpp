// SPDX-License-Identifier: Apache-2.0
// jsrun, of IBM's Job Step Manager: inside of an allocation of LSF it starts tasks on the compute
// nodes, while the job's script has a launch node. https://www.ibm.com/docs, "jsrun command". Not
// run on a real one.
#include "launcher/engines/engine.h"
#include "launcher/engines/registry.h"

namespace hora::launcher {

const EngineDescriptor* lsf_engine_descriptor();  // whose allocation it is

namespace {

bool is_here(const EngineInputs& inputs) {
  return !inputs.variable("LSB_JOBID").value_or("").empty() && inputs.has_program("jsrun");
}

// The launch node comes first, once, and its processors are not the job's. Where every host comes
// once they cannot be distinguished, and none is left out.
void drop_launch_node(std::vector<Host>& hosts) {
  if (hosts.size() > 1 && hosts[0].slots == 1 && hosts[1].slots > 1) hosts.erase(hosts.begin());
}

// `uname -n` may say more than the list does.
std::string name_of_a_host(const std::vector<Host>& hosts) {
  const bool with_domain = hosts.front().name.find('.') != std::string::npos;
  return with_domain ? "$(uname -n)" : "$(uname -n | sed \"s/[.].*//\")";
}

// One task on each host, with all that the host has. The documentation of jsrun's stdin does not
// promise it to every task. smpiargs=off: the tasks are not MPI programs, and need none of its
// libraries.
EngineStep step(const std::vector<std::string>& args, const std::vector<Host>& hosts,
                std::string folder) {
  EngineStep step;
  step.name = "jsrun";
  step.start = {"jsrun",          "--nrs",  "{count}",      "--rs_per_host", "1",
                "--tasks_per_rs", "1",      "--cpu_per_rs", "ALL_CPUS",      "--gpu_per_rs",
                "ALL_GPUS",       "--bind", "none",         "--smpiargs=off"};
  step.start.insert(step.start.end(), args.begin(), args.end());
  step.folder = std::move(folder);
  step.host_text = name_of_a_host(hosts);
  return step;
}

// A host that no task has dialled from is reached by blaunch, as in LSF; the arguments are jsrun's.
Result<Allocation> find(const EngineInputs& inputs, const std::vector<std::string>& args) {
  auto found = lsf_engine_descriptor()->find(inputs, {});
  if (!found) return found;
  std::string folder = cache_folder(inputs);
  if (folder.empty()) {
    return make_error(ErrorCode::kUsage, "$HOME is not set, where the tasks of jsrun find us");
  }
  drop_launch_node(found->hosts);
  found->step = step(args, found->hosts, std::move(folder));
  return found;
}

std::string verdict(std::string_view job, const EngineAnswer& answer) {
  return lsf_engine_descriptor()->verdict(job, answer);
}

constexpr EngineDescriptor kDescriptor{
    .name = "jsrun",
    .title = "jsrun (LSF)",
    .from =
        "as LSF, if there is a `jsrun` in `$PATH`; without the launch node, which is the first "
        "host if it has one slot and the next one has more",
    .how = "jsrun",
    .mark = "LSB_JOBID",
    .is_here = is_here,
    .find = find,
    .verdict = verdict};

}  // namespace

const EngineDescriptor* jsrun_engine_descriptor() { return &kDescriptor; }

}  // namespace hora::launcher
