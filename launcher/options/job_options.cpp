// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/job_options.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <utility>

#include "launcher/network/network_choice.h"
#include "launcher/options/engine_options.h"
#include "launcher/options/host_options.h"
#include "launcher/plan/binding.h"
#include "launcher/plan/worker_environment.h"
#include "launcher/text/text.h"
#include "launcher/text/units.h"
#include "launcher/text/user_input.h"
#include "launcher/transports/transport.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

// VAR=VALUE sets a variable; VAR alone passes on the value that it has here, which matters only for
// those that would stay on this machine, such as CUDA_VISIBLE_DEVICES. Files have the form that
// docker's --env-file has: no quotes, no expansion.

namespace {

// The problem of VAR or VAR=VALUE; empty: none.
std::string problem_with(std::string_view text) {
  const std::string_view name = text.substr(0, text.find('='));
  if (name.empty()) return "expected VAR or VAR=VALUE";
  if (name.find_first_of(" \t") != std::string_view::npos) {
    return "expected VAR or VAR=VALUE, found a blank in the name " + quote(name);
  }
  const std::size_t star = name.find('*');
  if (star == 0 || (star != std::string_view::npos && star + 1 < text.size())) {
    return "expected a name, or the first letters of names and '*' such as NCCL_*, found " +
           quote(text);
  }
  // A value from outside would put the rank into another place, or another job.
  if (travel_of(name) == Travel::kNowhere) {
    return std::string(name) + " cannot be set: horarun sets it for each rank, or no rank has it";
  }
  return "";
}

constexpr std::string_view kController = "HOROVOD_CONTROLLER";
constexpr std::string_view kCpuOperations = "HOROVOD_CPU_OPERATIONS";

class JobReader {
 public:
  JobReader(const ProcessInputs& inputs, JobSpec& job, std::vector<std::string>& warnings)
      : inputs_(inputs), job_(job), warnings_(warnings) {}

  Status read_option(const std::string& text) {
    const std::string problem = problem_with(text);
    if (!problem.empty()) return usage("-x: " + problem);
    add(text, "-x");
    return Ok{};
  }

  bool has(std::string_view name) const {
    return std::any_of(job_.variables.begin(), job_.variables.end(),
                       [name](const auto& variable) { return variable.name == name; });
  }

  Status read_file(const std::string& path) {
    const auto text = inputs_.read_file(path);
    if (!text) return usage("--env-file: " + text.error().message);
    std::size_t number = 0;
    for (std::string_view line : split(without_mark(*text), '\n')) {
      ++number;
      if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
      if (trim(line).empty() || trim(line).front() == '#') continue;
      const std::string problem = problem_with(line);
      if (!problem.empty()) return spec_error({path, line, number}, 0, problem);
      add(line, path + ":" + std::to_string(number));
    }
    return Ok{};
  }

 private:
  static std::string_view name_of(std::string_view text) { return text.substr(0, text.find('=')); }

  void add(std::string_view text, const std::string& origin) {
    const std::string name(name_of(text));
    if (name.size() < text.size()) return set(name, std::string(text.substr(name.size() + 1)));
    bool found = false;
    for (const std::string& each : names_of(name)) {
      const auto value = inputs_.variable(each);
      if (!value) continue;
      found = true;
      set(each, *value);
    }
    if (found) return;
    const bool many = name.ends_with('*');
    warnings_.push_back(origin + ": " + (many ? "no variable " : "") + name + " is " +
                        (many ? "" : "not ") + "set here, so it is not passed on");
  }

  // "NCCL_*" is every variable whose name begins so, as with mpirun.
  std::vector<std::string> names_of(const std::string& name) const {
    if (!name.ends_with('*') || !inputs_.variable_names) return {name};
    const std::string_view begin = std::string_view(name).substr(0, name.size() - 1);
    std::vector<std::string> names;
    for (std::string& each : inputs_.variable_names()) {
      if (each.starts_with(begin) && travel_of(each) != Travel::kNowhere) {
        names.push_back(std::move(each));
      }
    }
    return names;
  }

  void set(const std::string& name, std::string value) {
    auto& list = job_.variables;
    const auto known = std::find_if(
        list.begin(), list.end(), [&name](const auto& variable) { return variable.name == name; });
    // Of a name that comes twice the last value counts, at the position of the first.
    if (known != list.end()) {
      known->value = std::move(value);
    } else {
      list.push_back({name, std::move(value)});
    }
  }

  const ProcessInputs& inputs_;
  JobSpec& job_;
  std::vector<std::string>& warnings_;
};

}  // namespace

// The order of the two loops is the precedence: what is typed wins over what is in a file, and of
// several files or options the last one wins, as with docker.
Status read_environment_options(const OptionValues& values, const ProcessInputs& inputs,
                                JobSpec& job, std::vector<std::string>& warnings) {
  JobReader reader(inputs, job, warnings);
  for (const std::string& path : values.all("--env-file")) HORA_TRY(reader.read_file(path));
  for (const std::string& text : values.all("-x")) HORA_TRY(reader.read_option(text));
  // As under horovodrun, whose ranks have none but Gloo. Sites set it for mpirun.
  if (job.by_mpirun) return Ok{};
  for (const auto& [name, way] : {std::pair{kController, "--mpi starts the ranks with mpirun"},
                                  {kCpuOperations, "--cpu-operations asks for MPI or oneCCL"}}) {
    const std::string value = inputs.variable(name).value_or("");
    if (value.empty() || lower_case(value) == "gloo" || reader.has(name)) continue;
    if (name == kCpuOperations && values.has("--cpu-operations")) continue;
    warnings.push_back(std::string(name) + "=" + value + " is set here and not passed on; " + way);
  }
  return Ok{};
}

// Turns checked option values into a JobSpec. Values are valid here; what is left to check is how
// options fit together.

namespace {

// Kubernetes' MPI Operator announces its way into the pods by this variable and value.
// Open MPI's names of what reaches a host: to version 4, and from 5.
constexpr const char* kAgentVariables[] = {"OMPI_MCA_plm_rsh_agent", "PRTE_MCA_plm_ssh_agent",
                                           "OMPI_MCA_plm_ssh_agent", "PRTE_MCA_plm_rsh_agent"};
constexpr std::string_view kKubexec = "/etc/mpi/kubexec.sh";

std::chrono::milliseconds duration_of(const OptionValues& values, std::string_view name,
                                      std::chrono::milliseconds otherwise) {
  return parse_duration(values.text(name)).value_or(otherwise);
}

Status read_hosts(const OptionValues& values, const ProcessInputs& inputs, JobSpec& job) {
  // The two options exclude each other; the option table sees to it.
  if (values.has("-H")) {
    auto hosts = parse_host_list(values.joined("-H", ","), "-H");
    if (!hosts) return std::move(hosts).error();
    job.hosts = std::move(*hosts);
  }
  for (const std::string& path : values.all("--hostfile")) {
    auto text = inputs.read_file(path);
    if (!text) return usage("--hostfile: " + text.error().message);
    auto hosts = parse_hostfile(*text, path);
    if (!hosts) return std::move(hosts).error();
    HORA_TRY(add_hosts(job.hosts, std::move(*hosts), path));
  }
  return Ok{};
}

Status read_transport(const OptionValues& values, const ProcessInputs& inputs, JobSpec& job) {
  const std::string name = values.text("--transport", "auto");
  const TransportDescriptor* chosen = find_transport(name);  // nullptr: auto
  const bool has_kubexec =
      std::any_of(std::begin(kAgentVariables), std::end(kAgentVariables),
                  [&](const char* name) { return inputs.variable(name) == kKubexec; });
  if (values.has("--rsh")) {
    // --rsh implies the transport that runs a command, and contradicts every other one.
    const TransportDescriptor& taker = command_transport();
    if (chosen != nullptr && !chosen->takes_command) {
      return usage("--rsh is for --transport " + std::string(taker.name) + ", found --transport " +
                   name);
    }
    auto words = split_shell_words(values.text("--rsh"));
    if (!words) return std::move(words).error().with_context("--rsh");
    if (words->empty())
      return usage("--rsh: expected a command such as 'kubectl exec -i', found only blanks");
    job.rsh_command = std::move(*words);
    chosen = &taker;
  } else if (has_kubexec && (chosen == nullptr || chosen->takes_command)) {
    // Jobs that the MPI Operator starts work without further options.
    job.rsh_command = {std::string(kKubexec)};
    chosen = &command_transport();
  } else if (!job.rsh_command.empty()) {
    chosen = &command_transport();  // the engine starts agents
  }
  // With "auto", the default of the JobSpec reaches what is not this machine.
  job.local_directly = chosen == nullptr;
  if (chosen == nullptr) chosen = find_transport(job.transport);
  job.transport = chosen->name;
  return chosen->configure != nullptr ? chosen->configure(job) : Ok{};
}

// As in horovodrun, 0 or no value means the default.
Status read_start_timeout(const OptionValues& values, const ProcessInputs& inputs, JobSpec& job) {
  const auto given = duration_of(values, "--start-timeout", std::chrono::milliseconds(0));
  if (given.count() > 0) {
    job.start_timeout = given;
    return Ok{};
  }
  const auto text = inputs.variable("HOROVOD_START_TIMEOUT");
  if (!text || text->empty()) return Ok{};
  const auto value = parse_duration(*text);
  if (!value) {
    return usage("$HOROVOD_START_TIMEOUT: expected " + std::string(kDurationGrammar) + ", found " +
                 quote(*text));
  }
  if (value->count() > 0) job.start_timeout = *value;
  return Ok{};
}

Status read_network_interfaces(const OptionValues& values, JobSpec& job) {
  for (const std::string& list : values.all("--network-interfaces")) {
    for (const std::string_view item : split(list, ',')) {
      std::string selector(trim(item));
      auto problem = check_interface_selector(selector);
      if (!problem) return std::move(problem).error().with_context("--network-interfaces");
      auto& known = job.network_interfaces;
      // The same selector twice is harmless.
      if (std::find(known.begin(), known.end(), selector) == known.end()) {
        known.push_back(std::move(selector));
      }
    }
  }
  return Ok{};
}

// --fusion-threshold-mb sets HOROVOD_FUSION_THRESHOLD, which is in bytes. All other values go
// through as typed.
std::string knob_value(const OptionRow& row, const std::string& value) {
  if (!row.takes_value()) return std::string(row.flag_value);
  if (row.variable == "HOROVOD_FUSION_THRESHOLD") {
    return std::to_string(parse_int<std::int64_t>(value).value_or(0) * 1'048'576);
  }
  return value;
}

void read_knobs(const OptionValues& values, JobSpec& job) {
  for (const auto& [row, given] : values.rows()) {
    // Options without a variable are not for the runtime, and an option whose condition is missing
    // has no effect.
    if (row->variable.empty() || (!row->takes_value() && row->flag_value.empty())) continue;
    if (!row->needs.empty() && !values.has(row->needs)) continue;
    // The last value wins when an option is repeated.
    job.knobs.push_back({std::string(row->variable), knob_value(*row, given.back())});
  }
}

// All shipped files go into one directory on each host, so their names must differ.
Status check_ship_names(const std::vector<std::string>& files) {
  std::map<std::string, std::string> seen;
  for (const std::string& file : files) {
    const std::string name = file.substr(file.rfind('/') + 1);
    // "src/" and "." stand for what is in them.
    if (name.empty() || name == "." || name == "..") continue;
    const auto [known, added] = seen.emplace(name, file);
    if (!added) {
      return make_error(ErrorCode::kUsage, "--ship: " + quote(known->second) + " and " +
                                               quote(file) + " have the same name");
    }
  }
  return Ok{};
}

Status read_tls(const OptionValues& values, JobSpec& job) {
  job.rendezvous_tls = values.has("--rendezvous-tls");
  if (!job.rendezvous_tls) return Ok{};
  // These combinations cannot be encrypted; failing is better than a false sense of security.
  if (job.runtime == RuntimeKind::kHost) {
    return usage(
        "--rendezvous-tls cannot be used with --runtime host: Horovod's own workers speak plain "
        "HTTP to the "
        "rendezvous");
  }
  if (job.by_mpirun)
    return usage(
        "--rendezvous-tls cannot be used with --mpi: MPI connects the ranks, without a rendezvous");
  return Ok{};
}

// Faults are signals to horarun's own ranks, whose numbers must not change during the job.
Status read_chaos(const OptionValues& values, JobSpec& job) {
  if (!values.has("--chaos")) return Ok{};
  if (job.elastic) {
    return usage("--chaos cannot be used with elastic jobs (--min-np, --host-discovery-script)");
  }
  if (job.by_mpirun)
    return usage("--chaos cannot be used with --mpi: mpirun starts the ranks, not horarun");
  if (!job.pmi.empty()) return usage("--chaos cannot be used with --pmi " + job.pmi);
  auto chaos = parse_chaos(values.joined("--chaos", ","));
  if (!chaos) return std::move(chaos).error();
  job.chaos = std::move(*chaos);
  return Ok{};
}

Status read_restarts(const OptionValues& values, JobSpec& job) {
  const auto most = values.count("--restarts");
  if (!most || *most == 0) return Ok{};
  if (job.elastic) {
    return usage(
        "--restarts cannot be used with elastic jobs, which go on without what has failed; they "
        "have --reset-limit");
  }
  if (job.by_mpirun) {
    return usage(
        "--restarts cannot be used with --mpi: mpirun starts the ranks, not horarun; --pmi runs "
        "MPI programs without it");
  }
  const auto delay = duration_of(values, "--restart-delay", std::chrono::milliseconds(0));
  job.restart = RestartSpec{.most = *most, .delay = delay, .attempt = 0, .run_id = {}};
  return Ok{};
}

// Hooks of the Python packages that travel with the runtime do the work.
Status check_framework_options(const OptionValues& values, const JobSpec& job) {
  for (const std::string_view option : {"--tf-config", "--torch-backend"}) {
    if (!values.has(option)) continue;
    // TensorFlow's cluster cannot change.
    if (job.elastic && option == "--tf-config") {
      return usage("--tf-config cannot be used with elastic jobs; --restarts can");
    }
    if (job.by_mpirun) {
      return usage(std::string(option) + " cannot be used with --mpi; --pmi can");
    }
    if (job.runtime == RuntimeKind::kHost) {
      return usage(std::string(option) +
                   " cannot be used with --runtime host, which brings no Python packages");
    }
  }
  return Ok{};
}

// mpirun places the ranks, and ends them, by its own rules; so do the epochs of elastic jobs.
Status read_placement(const OptionValues& values, JobSpec& job) {
  job.map_by = values.text("--map-by") == "node" ? MapBy::kNode : MapBy::kSlot;
  job.keep_going = values.has("--keep-going");
  for (const std::string_view option : {"--map-by", "--keep-going"}) {
    const bool is_asked = option == "--map-by" ? job.map_by == MapBy::kNode : job.keep_going;
    if (!is_asked || (!job.elastic && !job.by_mpirun)) continue;
    return usage(std::string(option) + " cannot be used with " +
                 (job.elastic ? "elastic jobs" : "--mpi; --mpi-args has options for mpirun"));
  }
  return Ok{};
}

// Lists are read here for their errors alone; each host has to see whether it has such CPUs. mpirun
// would not know of our choice, so it is an error rather than an option without effect.
Status read_binding(const OptionValues& values, JobSpec& job) {
  job.bind = values.text("--bind", job.bind);
  const std::string_view mode = job.bind;
  if (job.by_mpirun && mode != "auto" && mode != "none") {
    return usage(
        "--bind " + job.bind +
        " cannot be used with --mpi: mpirun binds the ranks; --binding-args has its options");
  }
  job.gpus_per_rank = values.text("--gpus-per-rank");
  if (job.by_mpirun && !job.gpus_per_rank.empty()) {
    return usage(
        "--gpus-per-rank cannot be used with --mpi: mpirun gives all ranks of a host one "
        "environment; the ranks choose by $OMPI_COMM_WORLD_LOCAL_RANK");
  }
  if (!mode.starts_with(kCpuListMode)) return Ok{};
  const auto lists = parse_cpu_lists(mode.substr(kCpuListMode.size()), "--bind");
  return lists ? Status(Ok{}) : Status(lists.error());
}

Status read_shown_ranks(const OptionValues& values, JobSpec& job) {
  if (!values.has("--show-ranks")) return Ok{};
  auto ranks = RankList::parse(values.joined("--show-ranks", ","), "--show-ranks");
  if (!ranks) return std::move(ranks).error();
  job.shown_ranks = std::move(*ranks);
  return Ok{};
}

// Of rank 0, whose terminal is the user's as long as it lives.
Status read_pty(const OptionValues& values, JobSpec& job) {
  if (!values.has("--pty")) return Ok{};
  const std::string_view other = job.elastic ? "elastic jobs, in which processes change their ranks"
                                 : job.by_mpirun ? "--mpi: mpirun starts the ranks, not horarun"
                                 : values.has("--detach")   ? "--detach, which leaves the terminal"
                                 : values.has("--progress") ? "--progress, which draws on it"
                                 : job.stdin_policy == StdinPolicy::kAll
                                     ? "--stdin all: what is typed is for rank 0"
                                     : "";
  if (!other.empty()) return usage("--pty cannot be used with " + std::string(other));
  job.pty.emplace();
  return Ok{};
}

// What the lines of the output look like, and which of them are shown.
Status read_lines(const OptionValues& values, JobSpec& job) {
  job.prefix_timestamp = values.has("--prefix-output-with-timestamp");
  job.prefix_output = !values.has("--no-prefix-output");
  auto lines = LineFilter::parse(values.all("--show-lines"), values.all("--hide-lines"));
  if (!lines) return std::move(lines).error();
  job.shown_lines = std::move(*lines);
  if (!values.has("--output-prefix")) return Ok{};
  if (job.prefix_timestamp) {
    return usage(
        "--prefix-output-with-timestamp cannot be used with --output-prefix: {timestamp} in "
        "it is the same time");
  }
  auto prefix = LinePrefix::parse(values.text("--output-prefix"), "--output-prefix");
  if (!prefix) return std::move(prefix).error();
  job.own_prefix = std::move(*prefix);
  return Ok{};
}

void read_output(const OptionValues& values, JobSpec& job) {
  job.output_directory = values.text("--output-filename");
  if (const auto most = parse_size(values.text("--output-max-size"))) {
    job.rotation = FileRotation{.most_bytes = *most};
    job.rotation->most_files =
        values.count("--output-max-files").value_or(job.rotation->most_files);
  }
  job.merge_stderr = values.has("--merge-stderr");
  job.timings = values.has("--timings");
  job.progress = values.has("--progress");
  job.check_hosts = values.has("--check-hosts");
  const std::string stall = values.text("--on-stall");
  job.on_stall = stall == "warn"   ? StallPolicy::kWarn
                 : stall == "dump" ? StallPolicy::kDump
                 : stall == "kill" ? StallPolicy::kKill
                                   : StallPolicy::kIgnore;
  job.stall_after = duration_of(values, "--stall-after", job.stall_after);
  const std::string level = values.text("--log-level");
  // A verbose runtime log implies a verbose launcher.
  job.verbose = job.verbose || level == "TRACE" || level == "DEBUG";
  const std::string source = values.text("--stdin", "0");
  job.stdin_policy = source == "none"  ? StdinPolicy::kNone
                     : source == "all" ? StdinPolicy::kAll
                                       : StdinPolicy::kRankZero;
}

// What the host does with the words is known here already.
Status read_container(const OptionValues& values, JobSpec& job) {
  if (!values.has("--container")) return Ok{};
  ContainerSpec container{values.text("--container"), values.text("--container-runtime"),
                          values.joined("--container-args", " ")};
  if (container.image.empty() || container.image.starts_with('-')) {
    return usage("--container: expected an image, found " + quote(container.image));
  }
  if (values.has("--mpi")) {
    return usage("--container cannot be used with --mpi: mpirun starts the ranks, not horarun");
  }
  const auto words = split_shell_words(container.args);
  if (!words) return words.error().with_context("--container-args");
  const bool may_be_folder = is_image_path(container.image) && !container.image.ends_with(".sif");
  if (runtimes_for(container.image, may_be_folder, container.runtime).empty()) {
    return usage("--container-runtime " + container.runtime + " does not run " +
                 quote(container.image) + ": --container-runtime apptainer does");
  }
  job.container = std::move(container);
  return Ok{};
}

}  // namespace

// A descriptor has no extension: >(program) in a shell, or a pipe that a program passes on.
Status read_reports(const OptionValues& values, JobSpec& job) {
  job.report_files = values.all("--report");
  for (const std::string& file : job.report_files) {
    if (file.starts_with("/dev/fd/") || file.starts_with("/proc/self/fd/")) continue;
    const auto ends_in = [&file](std::string_view end) {
      return file.size() > end.size() && file.ends_with(end);
    };
    if (ends_in(".json") || ends_in(".html")) continue;
    return usage("--report: expected a file that ends in .json or .html, found " + quote(file));
  }
  return Ok{};
}

// The options that every verb with hosts shares.
Status read_reach_options(const OptionValues& values, const ProcessInputs& inputs, JobSpec& job) {
  HORA_TRY(read_hosts(values, inputs, job));
  HORA_TRY(read_engine_options(values, inputs, job));
  HORA_TRY(read_start_timeout(values, inputs, job));
  job.ssh.port = values.count("-p");
  job.ssh.identity_file = values.text("-i");
  job.ssh.config_file = values.text("--ssh-config-file");
  if (job.ssh.config_file == "none") job.ssh.config_file = "/dev/null";  // as `ssh -F none`
  job.ssh.accept_new_host_keys = values.has("--accept-new-host-keys");
  const std::string via = values.text("--ship-via");
  job.ship_via = via == "launcher" ? ShipVia::kLauncher
                 : via == "hosts"  ? ShipVia::kHosts
                                   : ShipVia::kAuto;
  job.fan_out = values.count("--fan-out").value_or(job.fan_out);
  job.verbose = values.has("--verbose");
  job.json = values.has("--json");
  job.cache_limits =
      read_cache_limits(values, "--cache-max-age", "--cache-max-size", job.cache_limits);
  HORA_TRY(read_container(values, job));
  return read_transport(values, inputs, job);  // last: a transport may look at any of the above
}

CacheLimits read_cache_limits(const OptionValues& values, std::string_view max_age,
                              std::string_view max_size, CacheLimits otherwise) {
  CacheLimits limits = otherwise;
  if (const auto age = parse_duration(values.text(max_age))) {
    // Never sooner than was asked for.
    limits.max_age = std::chrono::ceil<std::chrono::seconds>(*age);
    if (age->count() == 0) limits.max_age.reset();
  }
  if (const auto bytes = parse_size(values.text(max_size))) {
    limits.max_bytes = bytes;
    if (*bytes == 0) limits.max_bytes.reset();
  }
  return limits;
}

Status read_job_options(const OptionValues& values, const ProcessInputs& inputs, JobSpec& job,
                        std::vector<std::string>& warnings) {
  HORA_TRY(read_reach_options(values, inputs, job));
  HORA_TRY(read_host_filter(values, job));
  HORA_TRY(read_listen_options(values, job));
  HORA_TRY(read_slot_options(values, inputs, job));
  HORA_TRY(read_elastic_options(values, inputs, job));
  HORA_TRY(read_network_interfaces(values, job));
  job.grace = duration_of(values, "--grace", job.grace);
  job.lease = duration_of(values, "--lease", job.lease);
  job.timeout = parse_duration(values.text("--timeout"));
  job.end_with = values.count("--end-with");
  job.working_directory = values.text("--wdir");
  job.ship_files = values.all("--ship");
  HORA_TRY(check_ship_names(job.ship_files));
  if (!job.ship_files.empty() && !job.working_directory.empty()) {
    return usage(
        "--wdir cannot be used with --ship, whose files are in the folder where the ranks start; "
        "another one takes: sh -c 'cd DIR && ...'");
  }
  job.ship_environment = values.text("--ship-env");
  if (const auto most = parse_size(values.text("--ship-max-size"))) {
    job.ship_max_bytes = *most == 0 ? std::numeric_limits<std::uint64_t>::max() : *most;
  }
  job.runtime = values.text("--runtime") == "host" ? RuntimeKind::kHost : RuntimeKind::kHora;
  // horarun itself starts the ranks of an elastic job; a warning says so.
  job.by_mpirun = values.has("--mpi") && !job.elastic;
  // By then mpirun has taken the place of horarun.
  for (const char* name : {"--report", "--timings", "--progress", "--on-stall", "--detach"}) {
    if (job.by_mpirun && values.has(name)) {
      return usage(std::string(name) + " is not supported with --mpi");
    }
  }
  job.pmi = values.has("--pmix") ? "pmix" : values.text("--pmi");
  // "none" exists to override a configuration file.
  if (job.pmi == "none") job.pmi.clear();
  if (!job.pmi.empty() && job.elastic) {
    return usage("--pmi " + job.pmi + " cannot be used with elastic jobs");
  }
  if (!job.pmi.empty() && job.runtime == RuntimeKind::kHost) {
    return usage("--pmi " + job.pmi + " needs hora-" + job.pmi +
                 ", which --runtime host does not bring to the hosts");
  }
  HORA_TRY(read_tls(values, job));
  job.mpi_args = values.joined("--mpi-args", " ");
  job.binding_args = values.joined("--binding-args", " ");
  HORA_TRY(read_chaos(values, job));
  HORA_TRY(read_reports(values, job));
  read_output(values, job);
  HORA_TRY(read_pty(values, job));
  HORA_TRY(read_lines(values, job));
  HORA_TRY(read_binding(values, job));
  HORA_TRY(read_shown_ranks(values, job));
  HORA_TRY(read_restarts(values, job));
  HORA_TRY(read_placement(values, job));
  HORA_TRY(check_framework_options(values, job));
  HORA_TRY(read_environment_options(values, inputs, job, warnings));
  read_knobs(values, job);
  return Ok{};
}

}  // namespace hora::launcher
