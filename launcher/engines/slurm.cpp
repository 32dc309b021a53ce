// SPDX-License-Identifier: Apache-2.0
// Slurm: https://slurm.schedmd.com/sbatch.html, "Output environment variables", and srun(1). Seen
// with 22.05.
#include <algorithm>
#include <initializer_list>

#include "launcher/engines/host_counts.h"
#include "launcher/engines/registry.h"
#include "launcher/plan/rank_count.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

// srun takes options from these, too. They describe the tasks of the user's job; an agent's step
// has one task on each node, with all of the job's share of it. The last ones would change or
// redirect what the agents say.
constexpr std::string_view kOptionsOfTheJob[] = {
    "SLURM_NTASKS",          "SLURM_NPROCS",        "SLURM_NTASKS_PER_NODE", "SLURM_CPUS_PER_TASK",
    "SRUN_CPUS_PER_TASK",    "SLURM_TRES_PER_TASK", "SLURM_GPUS_PER_TASK",   "SLURM_GPU_BIND",
    "SLURM_NTASKS_PER_CORE", "SLURM_DISTRIBUTION",  "SLURM_EXACT",           "SLURM_LABELIO",
    "SLURM_STDOUTMODE",      "SLURM_STDERRMODE"};

using Words = std::vector<std::string>;

void add(Words& words, std::initializer_list<const char*> more) {
  words.insert(words.end(), more.begin(), more.end());
}

// Variables where they will do: a Slurm that does not know one ignores it, and an option of
// --engine-args wins. --cpu-bind=none would warn where binding is not configured. Steps that
// overlap share the job's processors; by SLURM_EXTERNAL_LAUNCHER (23.11) memory and GPUs, too.
Words environment_of_a_step(const EngineInputs& inputs) {
  Words words{"env"};
  for (const std::string_view name : kOptionsOfTheJob) {
    if (!inputs.variable(name)) continue;
    words.emplace_back("-u");
    words.emplace_back(name);
  }
  add(words, {"SLURM_CPU_BIND=none", "SLURM_OVERLAP=1", "SLURM_MPI_TYPE=none",
              "SLURM_EXTERNAL_LAUNCHER=1"});
  return words;
}

// Without --unbuffered srun would pass whole lines only.
Words starter(const EngineInputs& inputs, const Words& args) {
  Words words = environment_of_a_step(inputs);
  add(words, {"srun", "--unbuffered", "--nodes=1", "--ntasks=1", "--input=0", "--quiet"});
  words.insert(words.end(), args.begin(), args.end());
  add(words, {"--nodelist={host}", "sh", "-c", "{command}"});
  return words;
}

// A task that ends, well or badly, is no reason to end the others, and neither is a node that
// fails: an elastic job goes on without it. srun hands its environment to the nodes in the clear:
// nothing but what a shell needs to find programs and the user's cache. The tasks say whole lines,
// so srun need not be --unbuffered, which gives each of them a terminal.
EngineStep step(const EngineInputs& inputs, const Words& args) {
  EngineStep step;
  step.name = "srun";
  step.start = environment_of_a_step(inputs);
  add(step.start,
      {"SLURM_KILL_BAD_EXIT=0", "SLURM_WAIT=0",
       "SLURM_EXPORT_ENV=HOME,PATH,USER,LOGNAME,TMPDIR,XDG_CACHE_HOME", "srun", "--nodes={count}",
       "--ntasks={count}", "--ntasks-per-node=1", "--input=all", "--no-kill", "--quiet"});
  step.start.insert(step.start.end(), args.begin(), args.end());
  add(step.start, {"--nodelist={hosts}"});
  step.copy = {"sbcast", "--jobid={step}", "{from}", "{to}"};
  step.step_text = "$SLURM_JOB_ID.$SLURM_STEP_ID";
  step.host_text = "$SLURMD_NODENAME";
  step.launcher_text = "$SLURM_LAUNCH_NODE_IPADDR";
  return step;
}

// "slurmstepd: error: *** STEP 12.0 ON n1 CANCELLED AT 2026-01-31T12:00:00 DUE TO TIME LIMIT ***",
// without the name of who says it. "srun: error: Node failure on n2" is none of these: the job has
// lost a host, and may go on without it.
std::string last_word(std::string_view said) {
  std::string found;
  std::string expired;
  for (std::string_view line : split(said, '\n')) {
    line = trim(line);
    // Whoever asks afterwards, or has the variables of an earlier job, learns no more.
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

// Of all nodes that the job has by now: one that failed, or that `scontrol update` has taken from
// the job, is not among them; one that was added is. An array's first job has the number of the
// array, so each line says whose it is. It is asked again at once when a host is lost; growth can
// wait, and a controller that has many jobs need not hear of each every second.
EngineWatch watch(std::string_view job) {
  return {"squeue --noheader --states=all --format='%A %T %N' --jobs=" + std::string(job), "squeue",
          std::chrono::seconds(10)};
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

// GPUs that Slurm was asked for as a sum may be spread in any way.
std::string unclear_gpus(const EngineInputs& inputs, const std::vector<Host>& hosts) {
  const int total = gpus_of(inputs.variable("SLURM_GPUS").value_or(""));
  const std::int64_t known = count_slots(hosts);
  if (total == 0 || total == known) return "";
  return "the job has " + counted(total, "GPU") + " on " + counted(hosts.size(), "node") +
         ", and nothing says which node has how many; ask for --gpus-per-node, or give "
         "--slots-per-host";
}

bool asked_for_tasks(const EngineInputs& inputs) {
  return inputs.variable("SLURM_NTASKS") || inputs.variable("SLURM_NTASKS_PER_NODE");
}

// As many as srun would start on each node; where no tasks were asked for, one for each GPU.
Result<std::vector<int>> slots_of(const EngineInputs& inputs, std::size_t nodes) {
  if (asked_for_tasks(inputs)) {
    auto text = needed_variable(inputs, "SLURM_TASKS_PER_NODE");
    if (!text) return std::move(text).error();
    return expand_counts(*text, "$SLURM_TASKS_PER_NODE", nodes);
  }
  for (const char* name : {"SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE"}) {
    const int gpus = gpus_of(inputs.variable(name).value_or(""));
    if (gpus > 0) return std::vector<int>(nodes, gpus);
  }
  const int total = gpus_of(inputs.variable("SLURM_GPUS").value_or(""));
  if (total > 0 && nodes == 1) return std::vector<int>{total};
  return std::vector<int>(nodes, 1);
}

// Each task of a step would start the whole job once more. In the shell of `srun --pty` somebody
// types, once.
Status check_step(const EngineInputs& inputs) {
  const auto tasks = parse_int<int>(inputs.variable("SLURM_STEP_NUM_TASKS").value_or("1"));
  const bool is_typed = inputs.variable("SLURM_PTY_PORT") && inputs.variable("SLURM_PROCID") == "0";
  if (tasks.value_or(1) <= 1 || is_typed) return Ok{};
  return make_error(ErrorCode::kUsage, "srun has started " + std::to_string(*tasks) +
                                           " of this horarun; start one, without srun, in the "
                                           "job's script or after salloc");
}

Result<Allocation> find(const EngineInputs& inputs, const std::vector<std::string>& args) {
  HORA_TRY(check_step(inputs));
  if (inputs.variable("SLURM_HET_SIZE").value_or("1") != "1") {
    return make_error(ErrorCode::kUsage,
                      "the components of a heterogeneous job are not put together; give -H");
  }
  auto list = needed_variable(inputs, "SLURM_JOB_NODELIST");
  if (!list) return std::move(list).error();
  auto hosts = parse_host_list(*list, "$SLURM_JOB_NODELIST");
  if (!hosts) return std::move(hosts).error();
  auto slots = slots_of(inputs, hosts->size());
  if (!slots) return std::move(slots).error();
  const auto step_nodes =
      parse_int<std::size_t>(inputs.variable("SLURM_STEP_NUM_NODES").value_or(""));
  if (slots->size() != hosts->size() && step_nodes == slots->size()) {
    return make_error(ErrorCode::kUsage, "srun tells of its own step, which has " +
                                             std::to_string(slots->size()) + " of the job's " +
                                             std::to_string(hosts->size()) +
                                             " nodes; start horarun without srun, in the job's "
                                             "script or after salloc");
  }
  if (slots->size() != hosts->size()) {
    return make_error(ErrorCode::kUsage,
                      "$SLURM_TASKS_PER_NODE counts " + std::to_string(slots->size()) +
                          " nodes, $SLURM_JOB_NODELIST names " + std::to_string(hosts->size()));
  }
  for (std::size_t i = 0; i < hosts->size(); ++i) (*hosts)[i].slots = (*slots)[i];
  Allocation found;
  found.job = inputs.variable("SLURM_JOB_ID").value_or("");
  found.hosts = std::move(*hosts);
  found.slots_are_free = !asked_for_tasks(inputs);
  if (found.slots_are_free) found.unclear_slots = unclear_gpus(inputs, found.hosts);
  found.starter = starter(inputs, args);
  found.step = step(inputs, args);
  // It goes into a line of the shell.
  if (parse_int<int>(found.job) && inputs.has_program("squeue")) found.watch = watch(found.job);
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
    .last_word = last_word,
    .hosts_now = hosts_now};

}  // namespace

const EngineDescriptor* slurm_engine_descriptor() { return &kDescriptor; }

}  // namespace hora::launcher
