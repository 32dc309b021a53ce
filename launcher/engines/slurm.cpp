// SPDX-License-Identifier: Apache-2.0
#include "launcher/engines/slurm.h"

#include <algorithm>
#include <initializer_list>
#include <numeric>

#include "launcher/engines/engine.h"
#include "launcher/engines/registry.h"
#include "launcher/plan/plan.h"
#include "rendezvous/base/text.h"

namespace hora::launcher::slurm {

// srun(1), "Input environment variables", of 22.05 to 26.05. SLURM_HOSTFILE and a few others are
// not in that list; srun reads them nevertheless.

namespace {

// srun takes these for options. They describe the tasks of the user's job, or what becomes of their
// output; an agent's step has one task on each node, with all of the job's share of that node.
// tests/integration/engines/test_slurm_options.py compares the list with the manual of each Slurm.
constexpr std::string_view kOptionsOfTheJob[] = {
    // tasks and where they run
    "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_NTASKS_PER_NODE", "SLURM_NTASKS_PER_SOCKET",
    "SLURM_NTASKS_PER_CORE", "SLURM_NTASKS_PER_GPU", "SLURM_NTASKS_PER_TRES", "SLURM_CPUS_PER_TASK",
    "SRUN_CPUS_PER_TASK", "SLURM_CPUS_PER_GPU", "SLURM_THREADS_PER_CORE", "SLURM_NSOCKETS_PER_NODE",
    "SLURM_NCORES_PER_SOCKET", "SLURM_CORE_SPEC", "SLURM_THREAD_SPEC", "SLURM_HINT",
    "SLURM_DISTRIBUTION", "SLURM_DIST_PLANESIZE", "SLURM_HOSTFILE", "SLURM_ARBITRARY_NODELIST",
    "SLURM_CONSTRAINT", "SLURM_CLUSTER_CONSTRAINT", "SLURM_USE_MIN_NODES", "SLURM_SPREAD_JOB",
    "SRUN_SEGMENT_SIZE", "SLURM_SPREAD_SEGMENTS", "SLURM_CONSOLIDATE_SEGMENTS", "SLURM_EXACT",
    "SLURM_EXCLUSIVE", "SLURM_OVERCOMMIT", "SLURM_RESV_PORTS",
    // GPUs and memory
    "SLURM_GPUS", "SLURM_GPUS_PER_NODE", "SLURM_GPUS_PER_SOCKET", "SLURM_GPUS_PER_TASK",
    "SLURM_GPU_BIND", "SLURM_GRES", "SLURM_STEP_GRES", "SLURM_GRES_FLAGS", "SLURM_TRES_BIND",
    "SLURM_TRES_PER_TASK", "SLURM_MEM_PER_CPU", "SLURM_MEM_PER_GPU", "SLURM_MEM_PER_NODE",
    "SLURM_MEM_BIND",
    // the program, its input and its output
    "SLURM_SRUN_MULTI", "SLURM_BCAST", "SLURM_BCAST_EXCLUDE", "SLURM_SEND_LIBS", "SLURM_TEST_EXEC",
    "SLURM_REMOTE_CWD", "SLURM_WORKING_DIR", "SRUN_EXPORT_ENV", "SLURM_LABELIO",
    "SLURM_UNBUFFEREDIO", "SLURM_OPEN_MODE", "SLURM_STDINMODE", "SLURM_STDOUTMODE",
    "SLURM_STDERRMODE", "SRUN_INPUT", "SRUN_OUTPUT", "SRUN_ERROR",
    "SLURM_DEBUG",  // excludes --quiet
    // when it ends
    "SLURM_TIMELIMIT", "SLURM_IMMEDIATE", "SLURM_DEPENDENCY", "SLURM_NO_KILL", "SLURM_OOMKILLSTEP",
    "SLURM_OOM_KILL_STEP", "SLURM_STEP_KILLED_MSG_NODE_ID"};

using Words = std::vector<std::string>;

void add(Words& words, std::initializer_list<const char*> more) {
  words.insert(words.end(), more.begin(), more.end());
}

bool are_equal(const std::vector<int>& counts) {
  return std::adjacent_find(counts.begin(), counts.end(), std::not_equal_to<>()) == counts.end();
}

// Variables where they will do: a Slurm that does not know one ignores it, and an option of
// --engine-args wins. --cpu-bind=none would warn where binding is not configured. By
// SLURM_EXTERNAL_LAUNCHER (23.11) a step has all of the job's share, GPUs and memory too, and takes
// nothing away from other steps; up to 23.02 SLURM_OVERLAP does the latter.
//
// srun hands its environment to the nodes in the clear: nothing but what a shell needs to find
// programs and the user's cache.
Words environment_of_a_step(const EngineInputs& inputs, const std::string& gpus) {
  Words words{"env"};
  for (const std::string_view name : kOptionsOfTheJob) {
    if (!inputs.variable(name)) continue;
    words.emplace_back("-u");
    words.emplace_back(name);
  }
  add(words, {"SLURM_CPU_BIND=none", "SLURM_MPI_TYPE=none", "SLURM_EXTERNAL_LAUNCHER=1",
              "SLURM_EXPORT_ENV=HOME,PATH,USER,LOGNAME,TMPDIR,XDG_CACHE_HOME"});
  words.push_back(gpus);
  return words;
}

}  // namespace

// Without --unbuffered srun would pass whole lines only.
Words starter(const EngineInputs& inputs, const Words& args, const Gpus& gpus) {
  Words words = environment_of_a_step(inputs, "SLURM_OVERLAP=1");
  if (!gpus.counts.empty() && are_equal(gpus.counts)) {
    words.push_back("SLURM_GPUS_PER_NODE=" + std::to_string(gpus.counts.front()));
  }
  add(words, {"srun", "--unbuffered", "--nodes=1", "--ntasks=1", "--input=0", "--quiet"});
  words.insert(words.end(), args.begin(), args.end());
  add(words, {"--nodelist={host}", "sh", "-c", "{command}"});
  return words;
}

// srun looks for a node in the first component of a heterogeneous job alone, unless an option names
// the component that has it.
Words starter_by_component(const EngineInputs& inputs, const Words& args,
                           const std::vector<Words>& nodes) {
  std::string script = "case $0 in";
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].empty()) continue;
    script += " " + join(nodes[i], "|") + ") group=" + std::to_string(i) + " ;;";
  }
  script +=
      " esac; exec srun --unbuffered --nodes=1 --ntasks=1 --input=0 --quiet --het-group=$group "
      "--nodelist=\"$0\" \"$@\"";
  Words words = environment_of_a_step(inputs, "SLURM_OVERLAP=1");
  add(words, {"sh", "-c"});
  words.push_back(script);
  add(words, {"{host}"});
  words.insert(words.end(), args.begin(), args.end());
  add(words, {"sh", "-c", "{command}"});
  return words;
}

// A task that ends, with any code, does not end the others, and neither does a node that fails: an
// elastic job goes on without it. The tasks print whole lines, so srun need not be --unbuffered,
// which gives each of them a terminal. Up to 23.02, a step that overlaps others does not get
// unequal numbers of GPUs; one that does not waits for them (findings/slurm-step-of-a-gpu-sum.sh).
EngineStep step(const EngineInputs& inputs, const Words& args, const Gpus& gpus) {
  EngineStep step;
  step.name = "srun";
  const bool unequal = !are_equal(gpus.counts);
  step.start = environment_of_a_step(inputs, unequal ? "SLURM_GPUS={gpus}" : "SLURM_OVERLAP=1");
  if (unequal) {
    for (std::size_t i = 0; i < gpus.counts.size(); ++i) {
      step.gpus[gpus.hosts[i].name] = gpus.counts[i];
    }
  } else if (!gpus.counts.empty()) {
    step.start.push_back("SLURM_GPUS_PER_NODE=" + std::to_string(gpus.counts.front()));
  }
  add(step.start,
      {"SLURM_KILL_BAD_EXIT=0", "SLURM_WAIT=0", "srun", "--nodes={count}", "--ntasks={count}",
       "--ntasks-per-node=1", "--input=all", "--no-kill", "--quiet"});
  step.start.insert(step.start.end(), args.begin(), args.end());
  add(step.start, {"--nodelist={hosts}"});
  step.copy = {"sbcast", "--jobid={step}", "{from}", "{to}"};
  step.step_text = "$SLURM_JOB_ID.$SLURM_STEP_ID";
  step.host_text = "$SLURMD_NODENAME";
  step.launcher_text = "$SLURM_LAUNCH_NODE_IPADDR";
  return step;
}

}  // namespace hora::launcher::slurm

namespace hora::launcher {

// Slurm: https://slurm.schedmd.com/sbatch.html, "Output environment variables". Seen with 22.05,
// 24.11 and 26.05.

namespace {

// "slurmstepd: error: *** STEP 12.0 ON n1 CANCELLED AT 2026-01-31T12:00:00 DUE TO TIME LIMIT ***",
// without the name of the program. "srun: error: Node failure on n2" is none of these: the job has
// lost a host, and may go on without it.
std::string last_word(std::string_view said) {
  std::string found;
  std::string expired;
  for (std::string_view line : split(said, '\n')) {
    line = trim(line);
    // A later question, or one with the variables of an earlier job, learns no more.
    constexpr std::string_view kError = "srun: error: ";
    if (line.starts_with(kError) && (line.ends_with(" has expired") ||
                                     line.find(": Invalid job id") != std::string_view::npos)) {
      expired = line.substr(kError.size());
    }
    const std::size_t stars = line.find("*** ");
    const bool ended =
        stars != std::string_view::npos && (line.find(" CANCELLED AT ") != std::string_view::npos ||
                                            line.find(" FAILED ") != std::string_view::npos);
    if (!ended) continue;
    std::string_view words = line.substr(stars + 4);
    if (words.ends_with(" ***")) words.remove_suffix(4);
    // The reason makes one line better than another.
    if (found.empty() || words.find(" DUE TO ") != std::string_view::npos) found = words;
  }
  return found.empty() ? expired : found;
}

// "srun: error: Task launch for StepId=12.0 failed on node n2: Communication connection failure",
// "sbcast: error: REQUEST_FILE_BCAST(n2): Communication connection failure": a daemon that is dead.
// Other hosts that cannot be copied to can be reached nevertheless.
std::vector<FailedHost> failed_hosts(std::string_view said) {
  std::vector<FailedHost> found;
  for (std::string_view line : split(said, '\n')) {
    line = trim(line);
    for (const std::string_view before : {" failed on node ", " REQUEST_FILE_BCAST("}) {
      const std::size_t at = line.find(before);
      if (at == std::string_view::npos) continue;
      const std::string_view rest = line.substr(at + before.size());
      const std::string_view name = rest.substr(0, rest.find_first_of(":) "));
      const bool is_dead = rest.find("onnection failure") != std::string_view::npos ||
                           rest.find("timed out") != std::string_view::npos;
      if (is_dead) found.push_back({std::string(name), std::string(line)});
    }
  }
  return found;
}

// Of all nodes that the job has by now: one that failed, or that `scontrol update` has taken from
// the job, is not among them; one that was added is. An array's first job has the number of the
// array, so each line names its job. It is asked again at once when a host is lost; growth can
// wait, which spares a controller with many jobs. squeue takes options from its environment, and
// users set them to see their own jobs in their own way.
EngineWatch watch(std::string_view job) {
  return {
      "unset $(env | sed -n 's/^\\(SQUEUE_[A-Z0-9_]*\\)=.*/\\1/p') _; squeue --noheader "
      "--states=all --format='%A %T %N' --jobs=" +
          std::string(job),
      "squeue", std::chrono::seconds(10)};
}

// Suspended, stopped and resizing jobs keep their nodes.
bool has_ended(std::string_view state) {
  constexpr std::string_view kEnds[] = {
      "BOOT_FAIL", "CANCELLED", "COMPLETED", "COMPLETING", "DEADLINE", "FAILED",       "NODE_FAIL",
      "PENDING",   "PREEMPTED", "REQUEUED",  "REVOKED",    "TIMEOUT",  "OUT_OF_MEMORY"};
  return std::find(std::begin(kEnds), std::end(kEnds), state) != std::end(kEnds);
}

Result<AllocationNow> hosts_now(std::string_view printed, std::string_view job,
                                const std::vector<Host>& at_start) {
  for (const std::string_view line : split(printed, '\n')) {
    const auto words = split(trim(line), ' ');
    if (words.size() < 2 || words[0] != job) continue;
    if (has_ended(words[1])) {
      return AllocationNow{{}, "job " + std::string(job) + " is " + std::string(words[1])};
    }
    if (words.size() != 3) break;
    auto hosts = parse_host_list(words[2], "squeue");
    if (!hosts) return std::move(hosts).error();
    give_slots(*hosts, at_start);
    return AllocationNow{std::move(*hosts), ""};
  }
  return make_error(ErrorCode::kFailed, "no state and nodes of job " + std::string(job) + " in " +
                                            quote(trim(printed)));
}

// "4", "a100:4" or "a100:2,v100:1": all GPUs of a node.
int gpus_of(std::string_view text) {
  int sum = 0;
  for (const std::string_view item : split(text, ',')) {
    const std::size_t colon = item.rfind(':');
    const auto count =
        parse_int<int>(colon == std::string_view::npos ? item : item.substr(colon + 1));
    sum = std::min(sum + std::clamp(count.value_or(0), 0, kMaxSlotsPerHost), kMaxSlotsPerHost);
  }
  return sum;
}

// "gpu:2(IDX:0,2),gpu:a100:1(IDX:1)": those of a line of `scontrol show job --details`.
int gpus_in(std::string_view list) {
  int sum = 0;
  for (std::size_t at = 0; (at = list.find("gpu:", at)) != std::string_view::npos; ++at) {
    if (at == 0 || list[at - 1] == ',') sum += gpus_of(list.substr(at, list.find('(', at) - at));
  }
  return sum;
}

// "     Nodes=n[1-2] CPU_IDs=0 Mem=0 GRES=gpu:2(IDX:0-1)": by host. Empty: it does not say.
std::vector<int> gpus_as_listed(std::string_view printed, const std::vector<Host>& hosts) {
  std::vector<int> counts(hosts.size(), 0);
  for (const std::string_view line : split(printed, '\n')) {
    const auto words = split(trim(line), ' ');
    constexpr std::string_view kNodes = "Nodes=", kGres = "GRES=";
    if (!words.front().starts_with(kNodes) || !words.back().starts_with(kGres)) continue;
    const auto named = parse_host_list(words.front().substr(kNodes.size()), "scontrol");
    if (!named) return {};
    for (const Host& each : *named) {
      for (std::size_t i = 0; i < hosts.size(); ++i) {
        if (hosts[i].name == each.name) counts[i] = gpus_in(words.back().substr(kGres.size()));
      }
    }
  }
  return counts;
}

int number_in(const EngineInputs& inputs, std::string_view name) {
  return gpus_of(inputs.variable(name).value_or(""));
}

// GPUs that were asked for as a sum may be spread in any way, which only Slurm itself knows. Other
// jobs do not have to wait for its answer. Empty: the sum was not asked for, or is unknown.
std::vector<int> gpus_of_a_sum(const EngineInputs& inputs, const std::vector<Host>& hosts) {
  const int total = number_in(inputs, "SLURM_GPUS");
  if (total == 0) return {};
  const auto nodes = static_cast<int>(hosts.size());
  if (nodes == 1) return {total};
  const std::string job = inputs.variable("SLURM_JOB_ID").value_or("");
  if (const auto said = inputs.answer({"scontrol", "show", "job", "--details", job})) {
    auto counts = gpus_as_listed(*said, hosts);
    if (std::accumulate(counts.begin(), counts.end(), 0) == total) return counts;
  }
  const int here = number_in(inputs, "SLURM_GPUS_ON_NODE");
  return here * nodes == total ? std::vector<int>(hosts.size(), here) : std::vector<int>{};
}

// The GPUs that a step has to ask for. `tasks` are the job's, by node.
slurm::Gpus gpus_to_ask_for(const EngineInputs& inputs, const std::vector<Host>& hosts,
                            const std::vector<int>& sum, const std::vector<int>& tasks) {
  slurm::Gpus gpus{hosts, sum};
  const int per_task = number_in(inputs, "SLURM_GPUS_PER_TASK");
  if (per_task == 0 || !sum.empty()) return gpus;
  gpus.counts = tasks;
  for (int& count : gpus.counts) count *= per_task;
  return gpus;
}

bool asked_for_tasks(const EngineInputs& inputs) {
  return inputs.variable("SLURM_NTASKS") || inputs.variable("SLURM_NTASKS_PER_NODE");
}

// Of each node, as far as the job's variables say. Empty: they do not.
std::vector<int> gpus_of_nodes(const EngineInputs& inputs, const std::vector<int>& asked,
                               std::size_t nodes) {
  if (!asked.empty()) return asked;
  for (const char* name : {"SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE"}) {
    const int gpus = number_in(inputs, name);
    if (gpus > 0) return std::vector<int>(nodes, gpus);
  }
  return {};
}

// As many as srun would start on each node; where no tasks were asked for, one for each GPU. Slurm
// 22.05 spreads tasks that it counts by GPUs without a look at which node has how many.
Result<std::vector<int>> slots_of(const EngineInputs& inputs, std::vector<int> sum,
                                  std::size_t nodes) {
  const int per_gpu = number_in(inputs, "SLURM_NTASKS_PER_GPU");
  const int per_task = number_in(inputs, "SLURM_GPUS_PER_TASK");
  if (!sum.empty() && (per_gpu > 0 || per_task > 0 || !asked_for_tasks(inputs))) {
    for (int& count : sum) count = count * std::max(per_gpu, 1) / std::max(per_task, 1);
    return sum;
  }
  if (asked_for_tasks(inputs)) {
    auto text = needed_variable(inputs, "SLURM_TASKS_PER_NODE");
    if (!text) return std::move(text).error();
    return expand_counts(*text, "$SLURM_TASKS_PER_NODE", nodes);
  }
  auto gpus = gpus_of_nodes(inputs, {}, nodes);
  return gpus.empty() ? std::vector<int>(nodes, 1) : gpus;
}

// The shell that salloc may start on a node (use_interactive_step) is a step with a number of its
// own, 4294967290, or -6 in 26.05, whose batch scripts have -5.
bool is_in_step(const EngineInputs& inputs) {
  const auto step = parse_int<std::int64_t>(inputs.variable("SLURM_STEP_ID").value_or(""));
  return step && *step >= 0 && *step < 0xfffffff0;
}

// Each task of a step would start the whole job once more. In the shell of `srun --pty` a user
// types it, once.
Status check_step(const EngineInputs& inputs) {
  const auto tasks = parse_int<int>(inputs.variable("SLURM_STEP_NUM_TASKS").value_or("1"));
  const bool is_typed = inputs.variable("SLURM_PTY_PORT") && inputs.variable("SLURM_PROCID") == "0";
  if (tasks.value_or(1) <= 1 || is_typed) return Ok{};
  return make_error(ErrorCode::kUsage, "srun has started " + std::to_string(*tasks) +
                                           " of this horarun; start one, without srun, in the "
                                           "job's script or after salloc");
}

Result<Allocation> find(const EngineInputs& inputs, const std::vector<std::string>& args);

// The variables of a component of a heterogeneous job have its number.
EngineInputs of_component(const EngineInputs& inputs, int number) {
  EngineInputs component = inputs;
  component.variable = [&inputs, end = "_HET_GROUP_" + std::to_string(number)](auto name) {
    return inputs.variable(std::string(name) + end);
  };
  return component;
}

// Each host gets an srun of its own: one step cannot have other numbers of nodes in each component.
// squeue would list the components apart, so they are not followed.
Result<Allocation> find_components(const EngineInputs& inputs, const std::vector<std::string>& args,
                                   int count) {
  Allocation found;
  std::vector<std::vector<std::string>> nodes(static_cast<std::size_t>(count));
  bool are_free = true;
  for (int i = 0; i < count; ++i) {
    auto component = find(of_component(inputs, i), {});
    if (!component) {
      return std::move(component).error().with_context("component " + std::to_string(i));
    }
    are_free &= component->slots_are_free;
    for (Host& host : component->hosts) {
      const auto shared = std::find_if(found.hosts.begin(), found.hosts.end(),
                                       [&](const Host& each) { return each.name == host.name; });
      if (shared != found.hosts.end()) {
        shared->slots = shared->slots.value_or(0) + host.slots.value_or(0);
        continue;
      }
      nodes[static_cast<std::size_t>(i)].push_back(host.name);
      found.hosts.push_back(std::move(host));
    }
    found.gpus.insert(found.gpus.end(), component->gpus.begin(), component->gpus.end());
  }
  if (found.gpus.size() != found.hosts.size()) found.gpus.clear();
  found.job = inputs.variable("SLURM_JOB_ID").value_or("");
  found.this_host = inputs.variable("SLURMD_NODENAME").value_or("");
  found.slots_are_free = are_free;
  found.starter = slurm::starter_by_component(inputs, args, nodes);
  return found;
}

// What horarun was given is the step that it runs in, which may have some of the job's nodes.
Result<Allocation> find(const EngineInputs& inputs, const std::vector<std::string>& args) {
  HORA_TRY(check_step(inputs));
  Allocation found;
  found.is_step = is_in_step(inputs);
  const int components = number_in(inputs, "SLURM_HET_SIZE");
  if (components > 1 && !found.is_step) return find_components(inputs, args, components);
  const std::string_view nodes = found.is_step ? "SLURM_STEP_NODELIST" : "SLURM_JOB_NODELIST";
  auto list = needed_variable(inputs, nodes);
  if (!list) return std::move(list).error();
  auto hosts = parse_host_list(*list, "$" + std::string(nodes));
  if (!hosts) return std::move(hosts).error();
  const std::vector<int> sum = found.is_step ? std::vector<int>{} : gpus_of_a_sum(inputs, *hosts);
  auto slots = slots_of(inputs, sum, hosts->size());
  if (!slots) return std::move(slots).error();
  if (slots->size() != hosts->size()) {
    return make_error(ErrorCode::kUsage, "$SLURM_TASKS_PER_NODE counts " +
                                             std::to_string(slots->size()) + " nodes, $" +
                                             std::string(nodes) + " names " +
                                             std::to_string(hosts->size()));
  }
  for (std::size_t i = 0; i < hosts->size(); ++i) (*hosts)[i].slots = (*slots)[i];
  found.job = inputs.variable("SLURM_JOB_ID").value_or("");
  found.hosts = std::move(*hosts);
  found.this_host = inputs.variable("SLURMD_NODENAME").value_or("");
  found.slots_are_free = !asked_for_tasks(inputs);
  const int total = number_in(inputs, "SLURM_GPUS");
  if (found.slots_are_free && !found.is_step && total > 0 && sum.empty()) {
    found.unclear_slots = "the job has " + counted(total, "GPU") + " on " +
                          counted(found.hosts.size(), "node") +
                          ", and nothing says which node has how many; ask for --gpus-per-node, "
                          "or give --slots-per-host";
  }
  const slurm::Gpus gpus = gpus_to_ask_for(inputs, found.hosts, sum, *slots);
  found.gpus = gpus_of_nodes(inputs, gpus.counts, found.hosts.size());
  found.starter = slurm::starter(inputs, args, gpus);
  found.step = slurm::step(inputs, args, gpus);
  // It goes into a line of the shell.
  if (parse_int<int>(found.job) && !found.is_step && inputs.has_program("squeue")) {
    found.watch = watch(found.job);
  }
  return found;
}

constexpr EngineDescriptor kDescriptor{
    .name = "slurm",
    .title = "Slurm",
    .from =
        "`$SLURM_JOB_NODELIST`, `$SLURM_TASKS_PER_NODE`; where no tasks were asked for, one slot "
        "for each GPU of a node, "
        "else one for each node",
    .how = "srun",
    .mark = "SLURM_JOB_ID",
    .find = find,
    .failed_hosts = failed_hosts,
    .last_word = last_word,
    .hosts_now = hosts_now};

}  // namespace

const EngineDescriptor* slurm_engine_descriptor() { return &kDescriptor; }

}  // namespace hora::launcher
