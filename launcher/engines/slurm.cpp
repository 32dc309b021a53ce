// SPDX-License-Identifier: Apache-2.0
// Slurm: https://slurm.schedmd.com/sbatch.html, "Output environment variables". Seen with 22.05,
// 24.11 and 26.05.
#include <algorithm>
#include <numeric>

#include "launcher/engines/host_counts.h"
#include "launcher/engines/registry.h"
#include "launcher/engines/slurm_step.h"
#include "launcher/plan/rank_count.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

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
// array, so each line says whose it is. It is asked again at once when a host is lost; growth can
// wait, and a controller that has many jobs need not hear of each every second. squeue takes
// options from its environment, and users set them to see their own jobs in their own way.
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

// GPUs that were asked for as a sum may be spread in any way, which only Slurm itself knows.
// Other jobs do not have to wait for its answer. Empty: the sum was not asked for, or nobody knows.
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

// Those that a step has to ask for. `tasks` are the job's, by node.
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

// What horarun was given is the step that it runs in, which may have some of the job's nodes.
Result<Allocation> find(const EngineInputs& inputs, const std::vector<std::string>& args) {
  HORA_TRY(check_step(inputs));
  if (inputs.variable("SLURM_HET_SIZE").value_or("1") != "1") {
    return make_error(ErrorCode::kUsage,
                      "the components of a heterogeneous job are not put together; give -H");
  }
  Allocation found;
  found.is_step = is_in_step(inputs);
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
