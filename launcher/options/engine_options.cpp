// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/engine_options.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "launcher/engines/registry.h"
#include "launcher/options/host_options.h"
#include "launcher/plan/plan.h"
#include "launcher/platforms/platform.h"
#include "launcher/text/units.h"
#include "launcher/text/user_input.h"
#include "launcher/transports/remote_command.h"
#include "rendezvous/base/hmac.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

// As in horovodrun, 0 or no value means the default.
Status read_timeout(const OptionValues& values, const ProcessInputs& inputs, ElasticSpec& spec) {
  if (const auto given = parse_duration(values.text("--elastic-timeout"))) {
    spec.timeout = *given;
    return Ok{};
  }
  const auto text = inputs.variable("HOROVOD_ELASTIC_TIMEOUT");
  if (!text || text->empty()) return Ok{};
  const auto value = parse_duration(*text);
  if (!value) {
    return usage("$HOROVOD_ELASTIC_TIMEOUT: expected " + std::string(kDurationGrammar) +
                 ", found " + quote(*text));
  }
  if (value->count() > 0) spec.timeout = *value;
  return Ok{};
}

// The job starts with -np ranks, so the limits must include that number.
Status check_numbers(const JobSpec& job) {
  const auto number = [](int value) { return std::to_string(value); };
  if (job.elastic->min_np > job.num_proc) {
    return usage("--min-np " + number(job.elastic->min_np) + " is more than -np " +
                 number(job.num_proc) + ", the number of ranks at the start");
  }
  if (job.elastic->max_np && *job.elastic->max_np < job.num_proc) {
    return usage("--max-np " + number(*job.elastic->max_np) + " is less than -np " +
                 number(job.num_proc) + ", the number of ranks at the start");
  }
  return Ok{};
}

}  // namespace

// Either option makes a job elastic, as in horovodrun.
bool is_elastic(const OptionValues& values) {
  return values.has("--min-np") || values.has("--host-discovery-script");
}

bool is_for_elastic_jobs(const OptionRow& row) {
  for (const std::string_view name :
       {"--max-np", "--elastic-timeout", "--reset-limit", "--blacklist-cooldown-range"}) {
    if (long_name(row) == name) return true;
  }
  return false;
}

Status read_elastic_options(const OptionValues& values, const ProcessInputs& inputs, JobSpec& job) {
  if (!is_elastic(values)) return Ok{};
  ElasticSpec spec;
  const auto least = values.count("--min-np");
  // --min-np alone also gives the number to start with.
  if (job.num_proc == 0 && least) job.num_proc = *least;
  if (job.num_proc == 0) {
    return usage("-np is missing: with how many ranks an elastic job starts");
  }
  const bool is_here = job.hosts.empty() && !values.has("--host-discovery-script");
  if (is_here) HORA_TRY(check_ranks_of_host("localhost", job.num_proc));
  spec.min_np = least.value_or(job.num_proc);
  spec.max_np = values.count("--max-np");
  spec.discovery_script = values.text("--host-discovery-script");
  if (job.engine && job.engine->watch) {
    spec.follows_engine = true;
    job.engine->text += "; hosts come and go as " + job.engine->watch->name + " says";
  }
  spec.reset_limit = values.count("--reset-limit");
  // The option's check has ensured two numbers in order.
  const std::string cooldown = values.text("--blacklist-cooldown-range");
  const auto range = split(cooldown, ' ');
  if (range.size() == 2) {
    spec.cooldown_seconds = {parse_int<int>(range[0]).value_or(1),
                             parse_int<int>(range[1]).value_or(1)};
  }
  HORA_TRY(read_timeout(values, inputs, spec));
  // The number of GPUs is known only when a host is connected, while the plan for an epoch needs it
  // before.
  if (job.slots_per_host_auto) {
    return usage("--slots-per-host auto cannot be used with elastic jobs; expected a number");
  }
  job.elastic = std::move(spec);
  return check_numbers(job);
}

namespace {

constexpr std::chrono::milliseconds kHostsCome{600'000};

bool names_hosts(const OptionValues& values) {
  return values.has("-H") || values.has("--hostfile") || values.has("--host-discovery-script") ||
         values.has("--listen") || values.verb() == kVerbKubernetes;
}

// nullptr: none is to be used. A user who names hosts means those, wherever horarun was started;
// only --engine says that the engine is to reach them.
Result<const EngineDescriptor*> choose(const OptionValues& values, const EngineInputs& inputs) {
  const bool by_jsrun = values.has("--jsrun");
  const std::string name = by_jsrun ? "jsrun" : values.text("--engine", "auto");
  if (name == "none") return nullptr;
  if (name == "auto") return names_hosts(values) ? nullptr : engine_here(inputs);
  const EngineDescriptor* const engine = find_engine(name);
  if (!is_here(*engine, inputs)) {
    const std::string asked_for = by_jsrun ? "--jsrun" : "--engine " + name;
    const bool marked = !inputs.variable(engine->mark).value_or("").empty();
    return usage(asked_for + ": not inside an allocation of " + std::string(engine->title) + ": " +
                 (marked ? "$PATH has no " + std::string(engine->how)
                         : "$" + std::string(engine->mark) + " is not set"));
  }
  return engine;
}

struct ChosenEngine {
  const EngineDescriptor* engine = nullptr;  // nullptr: none is to be used
  Allocation allocation;
  bool is_local = false;  // its only host is this machine, and nothing has to be started there
};

// --rsh and --transport say how; mpirun has a way of its own.
bool starts_by_engine(const OptionValues& values) {
  return !values.has("--rsh") && values.text("--transport", "auto") == "auto" &&
         !values.has("--mpi");
}

// The program that the engine's command is; empty: it has no command.
std::string program_of(const Allocation& allocation) {
  if (allocation.step) return allocation.step->name;
  return allocation.starter.empty() ? "" : rsh_program(allocation.starter);
}

std::string text_of(const OptionValues& values, const ChosenEngine& found) {
  const Allocation& allocation = found.allocation;
  std::string way = "ssh";
  if (values.has("--mpi")) {
    way = "mpirun";
  } else if (values.has("--rsh")) {
    way = "--rsh";
  } else if (!starts_by_engine(values)) {
    way = values.text("--transport");
  } else if (found.is_local) {
    way.clear();
  } else if (allocation.step) {
    way = allocation.step->name;
  } else if (!allocation.starter.empty()) {
    way = found.engine->how;
  }
  return allocation_text(*found.engine, allocation, way);
}

// A user who chooses among the hosts of an allocation, or names some, gets those.
bool follows(const OptionValues& values) {
  return !names_hosts(values) && !values.has("--include") && !values.has("--exclude") &&
         !values.has("--nnodes");
}

// More ranks than the slots of the allocation. Where each host has one, they say no more than that
// something is to be started there: torchrun's job scripts ask for one task on each node, and PBS
// lists a node once unless it is asked for mpiprocs.
Status make_room(const OptionValues& values, const EngineDescriptor& engine,
                 Allocation& allocation) {
  const int wanted = values.count("-np").value_or(0);
  auto& hosts = allocation.hosts;
  const auto named = parse_int<std::size_t>(values.text("--nnodes")).value_or(hosts.size());
  const std::size_t used = std::clamp<std::size_t>(named, 1, hosts.size());
  const std::vector<Host> first(hosts.begin(), hosts.begin() + static_cast<std::ptrdiff_t>(used));
  const std::int64_t slots = count_slots(first);
  if (wanted <= slots || is_elastic(values) || has_rankfile(values) || values.has("--include") ||
      values.has("--exclude")) {
    return Ok{};
  }
  const auto each = static_cast<int>((static_cast<std::size_t>(wanted) + used - 1) / used);
  const bool one_each =
      std::all_of(first.begin(), first.end(), [](const Host& host) { return host.slots == 1; });
  if (!allocation.slots_are_free && !one_each) {
    return usage("-np " + std::to_string(wanted) + " asks for " + counted(wanted, "rank") +
                 ", but the allocation of " + std::string(engine.title) + " has " +
                 counted(slots, "slot") + " on " + counted(used, "host") +
                 ". Give each host more slots (--slots-per-host " + std::to_string(each) +
                 "), or ask for fewer ranks.");
  }
  for (std::size_t i = 0; i < used; ++i)
    hosts[i].slots = std::max(hosts[i].slots.value_or(0), each);
  return Ok{};
}

// The user's value wins over what the engine was asked for. "auto" is settled when the hosts have
// reported how many GPUs they have, unless the engine knows.
Status take_slots(const OptionValues& values, const EngineDescriptor& engine,
                  Allocation& allocation) {
  if (names_hosts(values)) return Ok{};
  const std::vector<int>& gpus = allocation.gpus;
  const std::string gpus_per_rank = values.text("--gpus-per-rank");
  for (const char* name : {"--slots-per-host", "--nproc-per-node"}) {
    if (!values.has(name)) continue;
    const auto number = parse_int<int>(values.text(name));
    for (std::size_t i = 0; i < allocation.hosts.size(); ++i) {
      const bool is_open = !number && !gpus.empty();
      allocation.hosts[i].slots = is_open ? slots_for_gpus(gpus[i], gpus_per_rank) : number;
    }
    return Ok{};
  }
  // Slots that are a node's GPUs, unless those are chosen by their numbers.
  const bool are_chosen = values.has("--include") || values.has("--exclude");
  for (std::size_t i = 0; allocation.slots_are_free && !are_chosen && i < gpus.size(); ++i) {
    auto& slots = allocation.hosts[i].slots;
    if (slots == gpus[i]) slots = slots_for_gpus(gpus[i], gpus_per_rank);
  }
  if (!allocation.unclear_slots.empty() && !values.has("-np")) {
    return usage("the allocation of " + std::string(engine.title) + ": " +
                 allocation.unclear_slots);
  }
  return make_room(values, engine, allocation);
}

// A step contains its processes already. Else the engine's command would, if this machine has it: a
// container inside of an allocation often lacks it.
bool runs_here(const OptionValues& values, const ProcessInputs& inputs,
               const Allocation& allocation) {
  const auto& hosts = allocation.hosts;
  if (hosts.size() != 1 || !starts_by_engine(values)) return false;
  const bool is_this = hosts.front().name == allocation.this_host ||
                       (inputs.is_this_machine && inputs.is_this_machine(hosts.front().name));
  const std::string program = program_of(allocation);
  const bool has_program = !program.empty() && (!inputs.has_program || inputs.has_program(program));
  return is_this && !values.has("--engine-args") && (allocation.is_step || !has_program);
}

EngineInputs of_engines(const ProcessInputs& inputs) {
  const auto nowhere = [](std::string_view) { return false; };
  const auto silence = [](const std::vector<std::string>&) { return std::optional<std::string>(); };
  return {inputs.variable, inputs.read_file, inputs.has_program ? inputs.has_program : nowhere,
          inputs.answer ? inputs.answer : silence, inputs.variable_names};
}

Result<ChosenEngine> find_allocation(const OptionValues& values, const ProcessInputs& inputs) {
  const EngineInputs of_engine = of_engines(inputs);
  const auto engine = choose(values, of_engine);
  if (!engine) return engine.error();
  if (*engine == nullptr) return ChosenEngine{};
  auto args = split_shell_words(values.joined("--engine-args", " "));
  if (!args) return std::move(args).error().with_context("--engine-args");
  auto allocation = (*engine)->find(of_engine, *args);
  if (!allocation) {
    return std::move(allocation)
        .error()
        .with_context(std::string((*engine)->title) + " (--engine none ignores the allocation)");
  }
  HORA_TRY(take_slots(values, **engine, *allocation));
  ChosenEngine found{*engine, std::move(*allocation)};
  found.is_local = runs_here(values, inputs, found.allocation);
  return found;
}

}  // namespace

Status read_engine_options(const OptionValues& values, const ProcessInputs& inputs, JobSpec& job) {
  if (job.listen) return Ok{};  // read_platform() has found the hosts
  auto found = find_allocation(values, inputs);
  if (!found) return std::move(found).error();
  if (found->engine == nullptr) return Ok{};
  Allocation& allocation = found->allocation;
  if (names_hosts(values)) {
    allocation.hosts = job.hosts;
  } else {
    job.hosts = allocation.hosts;
  }
  // As long as machines that dial (--listen) and pods (horarun k8s) have: images are pulled.
  if (found->engine->hosts_come_late) {
    job.hosts_come_late = true;
    job.start_timeout = kHostsCome;
  }
  if (found->is_local) {
    // A container may have a name of its own.
    if (!inputs.is_this_machine || !inputs.is_this_machine(job.hosts.front().name)) {
      job.hosts.front().name = "localhost";
    }
  } else if (starts_by_engine(values)) {
    const std::string program = program_of(allocation);
    if (!program.empty() && inputs.has_program && !inputs.has_program(program)) {
      return usage("the allocation of " + std::string(found->engine->title) + ": $PATH has no " +
                   program + "; --transport ssh reaches its hosts by ssh");
    }
    job.rsh_command = allocation.starter;
    job.passing_refusal = found->engine->passing_refusal;
    job.engine_step = allocation.step;
  }
  job.engine = JobEngine{std::string(found->engine->name), allocation.job, text_of(values, *found),
                         allocation.question, follows(values) ? allocation.watch : std::nullopt};
  return Ok{};
}

std::string describe_allocation(const OptionValues& values, const ProcessInputs& inputs) {
  const auto found = find_allocation(values, inputs);
  if (!found) return found.error().message;
  if (found->engine == nullptr) return "";
  return text_of(values, *found);
}

namespace {

// "a:8,b:8"; as many as -np asks for where the platform does not say.
std::string host_list(const PlatformNodes& nodes, int ranks) {
  const int even = std::max(1, (ranks + nodes.count - 1) / nodes.count);
  std::vector<Host> hosts;
  for (std::size_t i = 0; i < nodes.names.size(); ++i) {
    hosts.push_back(Host{nodes.names[i], "", nodes.slots.empty() ? even : nodes.slots[i]});
  }
  return format_host_list(hosts);
}

// What to type instead. A number that neither the user nor the platform has named is one rank for
// each node, or one for each GPU of this one.
std::string lines_that_work(const OptionValues& values, const PlatformNodes& nodes,
                            const std::string& program) {
  const int slots = std::accumulate(nodes.slots.begin(), nodes.slots.end(), 0);
  const auto wanted = values.count("-np");
  const int ranks = wanted.value_or(std::max(slots, nodes.count));
  const std::string number = " -np " + std::to_string(ranks) + " ";
  std::string alone = wanted ? number : " --nproc-per-node auto ";
  if (!wanted && nodes.index && !nodes.slots.empty()) {
    alone = " -np " + std::to_string(nodes.slots[static_cast<std::size_t>(*nodes.index)]) + " ";
  }
  std::string lines;
  if (!nodes.names.empty()) {
    lines += "\n  one job, typed on node 0 alone, over ssh: horarun -H " + host_list(nodes, ranks) +
             " " + program;
  }
  return lines + "\n  one job, typed on node 0 alone, without ssh: horarun --listen any" + number +
         program + ", which prints the line for each node" +
         "\n  a job of its own on each node: horarun --engine none" + alone + program;
}

Error refusal(const OptionValues& values, const PlatformHere& here,
              const std::vector<std::string>& command) {
  const PlatformNodes& nodes = here.nodes;
  const std::string place =
      nodes.index ? "; this is node " + std::to_string(*nodes.index) : std::string();
  return usage(
      std::string(here.platform->title) + " runs this command on " + std::to_string(nodes.count) +
      " nodes (" + std::string(here.platform->mark) + place +
      "), and each would run the whole job: they cannot find each other" +
      lines_that_work(values, nodes, command.empty() ? "--smoke" : quote_shell_words(command)));
}

constexpr std::size_t kShortestToken = 24;

// A token that the user gave to all nodes, or a key that the platform has put there; else "".
Result<std::string> shared_secret(const ProcessInputs& inputs, const std::string& key_file) {
  std::string token(trim(inputs.variable("HORA_JOIN_TOKEN").value_or("")));
  const std::string file = inputs.variable("HORA_JOIN_TOKEN_FILE").value_or("");
  if (token.empty() && !file.empty()) {
    const auto text = inputs.read_file(file);
    if (!text) return usage("$HORA_JOIN_TOKEN_FILE: " + text.error().message);
    token = trim(*text);
  }
  if (token.empty() && file.empty() && !key_file.empty()) {
    const auto key = inputs.read_file(key_file);
    return key ? *key : std::string();
  }
  if ((token.empty() && file.empty()) || token.size() >= kShortestToken) return token;
  return usage((file.empty() ? "$HORA_JOIN_TOKEN" : "$HORA_JOIN_TOKEN_FILE") +
               std::string(": fewer than ") + std::to_string(kShortestToken) +
               " characters can be guessed; openssl rand -hex 16 prints enough");
}

// What the user says of each node, or of all, wins. "auto" is settled by each node itself.
std::vector<Host> hosts_of(const OptionValues& values, const PlatformNodes& nodes) {
  const std::set<std::string> unique(nodes.names.begin(), nodes.names.end());
  const auto ranks = values.count("-np");
  std::vector<int> slots = nodes.slots;
  std::optional<int> each;
  for (const char* name : {"--slots-per-host", "--nproc-per-node"}) {
    if (!values.has(name)) continue;
    each = parse_int<int>(values.text(name));
    slots = slots_on_each(each, nodes.count);
  }
  const bool fits = std::accumulate(slots.begin(), slots.end(), 0) == ranks.value_or(0);
  std::vector<Host> hosts;
  for (int i = 0; i < nodes.count; ++i) {
    const auto at = static_cast<std::size_t>(i);
    Host host{unique.size() == nodes.names.size() && !unique.empty() ? nodes.names[at]
                                                                     : "node" + std::to_string(i),
              "",
              {}};
    if (!slots.empty()) host.slots = slots[at];
    if (ranks && !each && !fits) {
      host.slots = *ranks / nodes.count + (i < *ranks % nodes.count ? 1 : 0);
    }
    hosts.push_back(std::move(host));
  }
  return hosts;
}

// A function of what all nodes know of their job, and not of the secret: nodes that have several of
// those meet, and say so. One of the platform's own, or below those that systems give away.
std::uint16_t door_of(const PlatformNodes& nodes) {
  if (nodes.port != 0) return nodes.port;
  const std::string hash = hmac_of_fields("port", {nodes.job, join(nodes.names, ",")});
  const auto byte = [&hash](std::size_t at) { return static_cast<unsigned char>(hash[at]); };
  return static_cast<std::uint16_t>(20'000 + (byte(0) * 256 + byte(1)) % 10'000);
}

}  // namespace

Result<std::optional<PlatformNode>> read_platform(const OptionValues& values,
                                                  const ProcessInputs& inputs, JobSpec& job) {
  if (names_hosts(values) || has_rankfile(values) || values.text("--engine") == "none") {
    return std::optional<PlatformNode>();
  }
  const auto found = platform_here(of_engines(inputs));
  if (!found) return found.error();
  const auto& here = *found;
  if (!here) return std::optional<PlatformNode>();
  const PlatformNodes& nodes = here->nodes;
  const std::string title(here->platform->title);
  const auto secret = shared_secret(inputs, nodes.key_file);
  if (!secret) return secret.error();
  const bool finds_head =
      nodes.index && here->platform->finds_head && (*nodes.index == 0 || !nodes.head.empty());
  if (!finds_head) return refusal(values, *here, job.command);
  if (values.count("-np").value_or(nodes.count) < nodes.count) {
    return usage("-np " + values.text("-np") + ": " + title + " runs this command on " +
                 std::to_string(nodes.count) +
                 " nodes, and each gets a rank; --engine none gives each a job of its own");
  }
  const std::string count = std::to_string(nodes.count);
  // Without a secret, nodes speak the protocol of agents, which is that of one version.
  const std::string key =
      hmac_of_fields(secret->empty() ? HORA_VERSION : *secret,
                     {"horarun", title, nodes.job, count, join(nodes.names, ",")});
  job.hosts = hosts_of(values, nodes);
  job.listen.emplace();
  job.listen->port = door_of(nodes);
  job.listen->own_commands = secret->empty();
  const Host& own = job.hosts[static_cast<std::size_t>(*nodes.index)];
  return std::optional(PlatformNode{title, key, nodes.head, job.listen->port, own.name, own.slots,
                                    *nodes.index == 0});
}

namespace {

// Agents are sent through the API server, to all pods at once.
constexpr std::chrono::milliseconds kAgentsStart{120'000};

// The API server knows what units there are; this is to find a slip before anything is made.
Result<std::string> read_quantity(const OptionValues& values, std::string_view option) {
  const std::string text = values.text(option);
  if (!values.has(option)) return text;
  const std::size_t unit = text.find_first_not_of("0123456789.");
  constexpr std::string_view kUnits[] = {"m", "k", "M", "G", "T", "Ki", "Mi", "Gi", "Ti"};
  const bool has_unit = unit != std::string::npos;
  const bool known = !has_unit || std::find(std::begin(kUnits), std::end(kUnits),
                                            text.substr(unit)) != std::end(kUnits);
  if (unit == 0 || !known) {
    return usage(std::string(option) +
                 ": expected a quantity of Kubernetes such as 4, 500m or 2Gi, "
                 "found " +
                 quote(text));
  }
  return text;
}

// A manifest says all this itself.
Status check_with_manifest(const OptionValues& values) {
  for (const std::string_view option : {"--workers", "--gpus-per-worker", "--cpus-per-worker",
                                        "--memory-per-worker", "--shm", "--dry-run"}) {
    if (values.has(option)) {
      return usage(std::string(option) + " cannot be used with --manifest: the manifest says it");
    }
  }
  return Ok{};
}

// In Kubernetes' own units, as they will stand in the manifest.
Status read_resources(const OptionValues& values, PodsSpec& pods) {
  for (const auto& [option, field] :
       {std::pair{"--cpus-per-worker", &PodsSpec::cpus},
        std::pair{"--memory-per-worker", &PodsSpec::memory}, std::pair{"--shm", &PodsSpec::shm}}) {
    auto quantity = read_quantity(values, option);
    if (!quantity) return std::move(quantity).error();
    pods.*field = std::move(*quantity);
  }
  pods.gpus = values.count("--gpus-per-worker").value_or(0);
  pods.gpu_resource = values.text("--gpu-resource", pods.gpu_resource);
  return Ok{};
}

// Without --workers as many as the GPUs of all ranks fill.
Status read_workers(const OptionValues& values, int ranks, PodsSpec& pods) {
  if (const auto workers = values.count("--workers")) {
    pods.workers = *workers;
  } else if (ranks > 0 && pods.gpus > 0) {
    pods.workers = (ranks + pods.gpus - 1) / pods.gpus;
  } else {
    return usage("how many pods? expected --workers N");
  }
  if (ranks > 0 && ranks < pods.workers) {
    return usage("-np " + std::to_string(ranks) + " leaves some of --workers " +
                 std::to_string(pods.workers) + " without a rank");
  }
  return Ok{};
}

}  // namespace

// Settings that reach hosts otherwise (an engine around this process, a variable of an operator)
// would reach others than the pods.
Status read_pod_options(const OptionValues& values, const ProcessInputs& inputs, JobSpec& job) {
  PodsSpec pods;
  if (values.has("--kubectl")) {
    auto words = split_shell_words(values.text("--kubectl"));
    if (!words) return std::move(words).error().with_context("--kubectl");
    if (words->empty()) return usage("--kubectl: expected a command, found only blanks");
    pods.kubectl = std::move(*words);
  }
  pods.name_space = values.text("--namespace");
  pods.image = values.text("--image");
  pods.manifest_file = values.text("--manifest");
  pods.timeout = parse_duration(values.text("--start-timeout")).value_or(pods.timeout);
  // Pods reach each other; whether they reach another machine, only its user knows.
  const std::string dial = values.text("--dial", "auto");
  const bool in_a_pod = inputs.variable && inputs.variable("KUBERNETES_SERVICE_HOST").has_value();
  pods.dial = dial == "yes" || (dial == "auto" && in_a_pod);
  if (!pods.manifest_file.empty()) {
    HORA_TRY(check_with_manifest(values));
  } else if (pods.image.empty()) {
    return usage("which image? expected --image IMAGE, or --manifest FILE");
  } else {
    HORA_TRY(read_resources(values, pods));
    HORA_TRY(read_workers(values, job.num_proc, pods));
  }
  job.pods = std::move(pods);
  // The words that reach a pod come when the pods are there.
  job.hosts.clear();
  job.engine.reset();
  job.transport = "command";
  job.local_directly = false;
  if (!values.has("--start-timeout")) job.start_timeout = kAgentsStart;
  // This machine's folder is not in the image; that of the container's own process is.
  if (job.working_directory.empty()) {
    job.working_directory = "/proc/1/cwd";
  } else if (!job.working_directory.starts_with('/')) {
    job.working_directory = "/proc/1/cwd/" + job.working_directory;
  }
  return Ok{};
}

}  // namespace hora::launcher
