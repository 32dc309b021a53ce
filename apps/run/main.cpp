// SPDX-License-Identifier: Apache-2.0
// horarun: from argv to an exit code. All decisions are in launcher/; this file connects them to
// the process: environment, signals, standard streams.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "apps/run/job_verbs.h"
#include "hora/event_schema.h"
#include "launcher/control/control_folder.h"
#include "launcher/control/kept_output.h"
#include "launcher/dial/dial_server.h"
#include "launcher/dial/join.h"
#include "launcher/doctor/doctor.h"
#include "launcher/doctor/findings.h"
#include "launcher/doctor/report.h"
#include "launcher/failures/explain.h"
#include "launcher/failures/failure_code.h"
#include "launcher/fleet/local_hosts.h"
#include "launcher/machine/host_facts.h"
#include "launcher/options/command_line.h"
#include "launcher/options/config_reader.h"
#include "launcher/parts/check_build.h"
#include "launcher/parts/python_environment.h"
#include "launcher/parts/vendor_search.h"
#include "launcher/plan/dry_run.h"
#include "launcher/pods/pod_manifest.h"
#include "launcher/pods/pods.h"
#include "launcher/process/captured_run.h"
#include "launcher/process/program_search.h"
#include "launcher/process/signals.h"
#include "launcher/protocol/exit_code.h"
#include "launcher/report/event_log.h"
#include "launcher/report/job_recorder.h"
#include "launcher/report/report_bundle.h"
#include "launcher/supervisor/attempts.h"
#include "launcher/supervisor/mpirun.h"
#include "launcher/supervisor/own_node.h"
#include "launcher/supervisor/supervisor.h"
#include "launcher/timeline/timeline_merge.h"
#include "rendezvous/os/files.h"
#include "rendezvous/os/limits.h"
#include "rendezvous/os/log.h"
#include "rendezvous/os/threads.h"
#include "rendezvous/serve.h"

extern char** environ;

namespace {

using namespace hora;
using namespace hora::launcher;

constexpr std::size_t kLongestJoinLine = 4096;

// Set once, before anything can fail.
bool errors_are_events = false;

int exit_code_of(const Error& error) {
  return error.code == ErrorCode::kUsage ? kExitUsage : kExitLauncher;
}

// The only place that prints an error that ends the program.
int fail(const Error& error) {
  const int exit_code = exit_code_of(error);
  if (errors_are_events) {
    const std::string event = EventLog::line(
        "job_end", {{"job_id", std::string()},
                    {"exit_code", std::int64_t{exit_code}},
                    {"code", std::string(exit_code == kExitUsage ? failure::kUsage : "")},
                    {"message", error.message}});
    std::fputs(event.c_str(), stderr);
  } else {
    std::fprintf(stderr, "horarun: error: %s\n", error.message.c_str());
  }
  return exit_code;
}

Result<int> print(const std::string& text, FILE* to = stdout) {
  if (std::fputs(text.c_str(), to) < 0 || std::fflush(to) != 0)
    return errno_error(errno, "writing to stdout");
  return int{kExitOk};
}

std::optional<std::string> variable(std::string_view name) {
  const char* value = std::getenv(std::string(name).c_str());
  if (value == nullptr) return std::nullopt;
  return value;
}

Result<std::string> current_directory() {
  char* path = ::getcwd(nullptr, 0);
  if (path == nullptr) {
    return errno_error(errno, "the current working directory (go to another, or give --wdir DIR)");
  }
  std::string text = path;
  std::free(path);
  return text;
}

// Where agents are, a folder that is named from here has no meaning.
Status complete_working_directory(JobSpec& spec) {
  const bool has_relative_image = spec.container && is_image_path(spec.container->image) &&
                                  !spec.container->image.starts_with('/');
  if (spec.working_directory.starts_with('/') && !has_relative_image) return Ok{};
  auto directory = current_directory();
  if (!directory) return std::move(directory).error();
  if (has_relative_image) spec.container->image = *directory + "/" + spec.container->image;
  if (spec.working_directory.starts_with('/')) return Ok{};
  if (!spec.working_directory.empty()) *directory += "/" + spec.working_directory;
  spec.working_directory = std::move(*directory);
  return Ok{};
}

// Elastic jobs with a script have no plan before the script runs.
Result<int> show_dry_run(const JobSpec& spec, const EnvironmentList& environment) {
  if (spec.elastic && !spec.elastic->discovery_script.empty()) {
    return make_error(
        ErrorCode::kUsage,
        "--dry-run does not run the discovery script; list hosts with -H to see a plan");
  }
  auto plan = plan_job(spec, settle_named_slots(spec));
  if (!plan) return std::move(plan).error();
  HORA_TRY(check_shown_ranks(spec, *plan));
  // Errors in --chaos appear in a dry run, too.
  if (spec.chaos) {
    if (auto steps = schedule_chaos(*spec.chaos, *plan); !steps) return std::move(steps).error();
  }
  const auto needs = vendor_needs_of(spec, environment, OptionalNeeds::kNamed);
  if (!needs) return needs.error();
  DryRun run{spec, *plan, environment};
  for (const VendorNeed& need : *needs) {
    if (auto text = plan_text(need); !text.empty()) run.libraries.emplace_back(need.name, text);
  }
  if (!spec.ship_environment.empty()) {
    const auto python = examine_environment(spec.ship_environment);
    if (!python) return Error(python.error()).with_context("--ship-env");
    // Names and sizes alone: nothing is read or hashed for a look.
    auto text = what_travels(*python);
    if (!text) return std::move(text).error().with_context("--ship-env");
    run.ship_environment = std::move(*text);
    // All ranks have a PATH, with and without it.
    for (const auto& [name, path] : environment_paths(*python)) {
      if (name != "PATH") run.environment_names.push_back(name);
    }
  }
  return print(spec.json ? dry_run_json(run) : dry_run_text(run));
}

// Returns 0 or 1, as `horarun doctor` does; 1 stops a job.
Result<int> examine(const JobSpec& spec, const Installation& installation,
                    const EnvironmentList& environment, bool deep, std::FILE* to) {
  doctor::Doctor doctor(spec, installation, environment, deep);
  auto examination = doctor.run();
  if (!examination) return std::move(examination).error();
  const auto findings = doctor::find_problems(*examination);
  // Those of a job are about the job.
  for (const std::string& file : to == stdout ? spec.report_files : std::vector<std::string>()) {
    HORA_TRY(write_public_file(is_page(file) ? doctor::report_html(*examination, findings)
                                             : doctor::report_json(*examination, findings),
                               file));
  }
  const bool as_json = spec.json && to == stdout;
  const std::string text = as_json ? doctor::report_json(*examination, findings)
                                   : doctor::report_text(*examination, findings, spec.verbose);
  if (std::fputs(text.c_str(), to) < 0 || std::fflush(to) != 0)
    return errno_error(errno, "writing the report");
  return doctor::exit_code_of(findings);
}

// Holds signals until a thread takes them, if any does. A second Ctrl-C that arrives when the job
// is over comes too late to end it differently.
void hold_signals(const sigset_t& held) { ::pthread_sigmask(SIG_BLOCK, &held, nullptr); }

// One that has come already takes effect now.
void release_signal(int signal) {
  sigset_t released;
  sigemptyset(&released);
  sigaddset(&released, signal);
  ::pthread_sigmask(SIG_UNBLOCK, &released, nullptr);
}

bool runs_job(const Command& command) {
  return std::holds_alternative<Launch>(command) || std::holds_alternative<Smoke>(command) ||
         std::holds_alternative<ManageCache>(command);
}

// For what has no narrator.
void announce_engine(const JobSpec& spec) {
  if (spec.engine && !spec.json) {
    std::fprintf(stderr, "horarun: %s\n", spec.engine->text.c_str());
  }
}

// On the hosts that join. They join for one job: it is not started again (--restarts).
Result<int> supervise(JobSpec spec, const Installation& installation,
                      const EnvironmentList& environment, JoinWait& join_wait) {
  const auto early = join_wait.wait(spec);
  if (!early) return early.error();
  if (early->has_value()) return **early;
  hold_signals(ending_signals());
  Supervisor supervisor(std::move(spec), installation, environment);
  supervisor.reach_hosts_by(
      [&join_wait](StageObserver observer) { return join_wait.transport(std::move(observer)); });
  return supervisor.run();
}

// Slots are counted here and not by an agent, which comes only when the launcher has its hosts:
// what this machine offers decides whether it has them.
int slots_here(const std::optional<int>& given) {
  return given ? *given : std::max(1, count_gpus());
}

// How a node of a platform reaches node 0.
Result<JoinOptions> options_to_join(const PlatformNode& node, Milliseconds wait) {
  JoinOptions options;
  auto url = url_of_key(node.key, {node.head, node.port});
  if (!url) return url.error();
  options.url = *std::move(url);
  options.name = node.name;
  options.launcher_wait = wait;
  options.slots = slots_here(node.slots);
  return options;
}

// One of several nodes that run the same command and share no secret.
Result<int> run_on_node(JobSpec spec, const Installation& installation,
                        const EnvironmentList& environment, const PlatformNode& node) {
  const auto join = options_to_join(node, spec.listen->timeout);
  if (!join) return join.error();
  std::string reached;
  auto stream = dial_launcher(*join, reached);
  if (!stream) return stream.error().with_context("node 0");
  hold_signals(ending_signals());
  return run_own_node(std::move(spec), installation, environment, *join, *std::move(stream));
}

// In pods that are created for the job and deleted after it.
Result<int> run_in_pods(JobSpec spec, const Installation& installation,
                        const EnvironmentList& environment) {
  auto pods = Pods::make(spec);
  if (!pods) return pods.error();
  const auto early = (*pods)->wait(spec);
  if (!early) return early.error();
  if (early->has_value()) return **early;
  hold_signals(ending_signals());
  // A program that SIGTERM has ended may exit with any code.
  HostOwner owner;
  owner.explain = [&pods = **pods](const Cause& cause,
                                   Milliseconds timeout) -> std::optional<Failure> {
    if (timeout.count() == 0 && cause.kind != Cause::Kind::kRank) return std::nullopt;
    return pods.why_ended(timeout.count() > 0);
  };
  if (spec.pods->dial) {
    owner.transport = [&pods = **pods, &own = installation.own()](const JobSpec& attempt,
                                                                  StageObserver observer) {
      return pods.transport(attempt, {own.dial_path, own.machine}, std::move(observer));
    };
  }
  return run_attempts(std::move(spec), installation, environment, owner);
}

// A batch system's job, mostly. There is nothing to pass on: the ranks have their own.
bool stdin_is_null_device() {
  struct stat info {};
  return ::fstat(STDIN_FILENO, &info) == 0 && S_ISCHR(info.st_mode) &&
         info.st_rdev == makedev(1, 3);  // Linux fixes this number
}

bool has_file(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

// Found before any host is asked for anything.
Status check_shipped(const JobSpec& spec) {
  for (const std::string& path : spec.ship_files) {
    if (has_file(path)) continue;
    return make_error(ErrorCode::kUsage, errno_error(errno, "--ship: opening " + path).message);
  }
  const std::string& folder = spec.ship_environment;
  if (folder.empty() || has_file(folder)) return Ok{};
  return make_error(ErrorCode::kUsage, "--ship-env: " + folder + ": no such folder");
}

Result<int> run_job(JobSpec spec, bool dry_run, const std::vector<std::string>& warnings,
                    const std::optional<PlatformNode>& node = {}) {
  for (const std::string& warning : warnings) {
    std::fprintf(stderr, "horarun: warning: %s\n", warning.c_str());
  }
  if (spec.verbose) os::set_log_level(os::LogLevel::kDebug);
  HORA_TRY(complete_working_directory(spec));
  const EnvironmentList environment = split_environment(environ);
  // The Job is what there is to see; which pod gets which ranks is known when there are pods.
  if (dry_run && spec.pods) return print(pod_manifest(spec));
  if (dry_run && spec.by_mpirun) {
    const auto text = mpirun_dry_run(spec, environment);
    return text ? print(*text) : text.error();
  }
  if (dry_run) {
    return show_dry_run(spec, environment);
  }
  // Checked before the job: a report that cannot be written after a long training would be lost.
  for (const std::string& file : spec.report_files) {
    if (const auto good = os::check_writable(file); !good) {
      return make_error(ErrorCode::kUsage, "--report: " + good.error().message);
    }
  }
  HORA_TRY(check_shipped(spec));
  auto installation = find_installation();
  if (installation) installation = with_parts_for_job(std::move(*installation), spec, environment);
  if (!installation) return installation.error();
  if (spec.check_hosts) {
    const auto examined = examine(spec, *installation, environment, false, stderr);
    if (!examined) return examined.error();
    if (*examined != 0) {
      std::fprintf(stderr, "horarun: the hosts are not fit for a job [%s]\n",
                   failure::kUnfit.data());
      return kExitLauncher;
    }
  }
  if (spec.by_mpirun) {
    return run_by_mpirun(spec, *installation, environment);
  }
  if (stdin_is_null_device()) spec.stdin_policy = StdinPolicy::kNone;
  if (spec.pods) return run_in_pods(std::move(spec), *installation, environment);
  if (node && !node->is_first)
    return run_on_node(std::move(spec), *installation, environment, *node);
  if (spec.listen) {
    // Node 0 counts its own slots, as nodes that join do.
    if (node) spec.hosts.front().slots = slots_here(spec.hosts.front().slots);
    // It outlives the supervisor: the machines get the exit code when everything is over.
    auto join_wait = JoinWait::open(spec, node);
    if (!join_wait) return join_wait.error();
    const auto code = supervise(std::move(spec), *installation, environment, **join_wait);
    (*join_wait)->say_goodbye(code ? *code : exit_code_of(code.error()));
    return code;
  }
  hold_signals(ending_signals());
  return run_attempts(std::move(spec), *installation, environment);
}

// The job's process leads a session without a terminal. What it prints is kept in a file, in a
// folder that outlives the user's session.
Result<int> run_without_terminal(JobSpec spec, const std::vector<std::string>& warnings,
                                 OutputFile& output) {
  ::setsid();
  HORA_TRY(output.take_over());
  HORA_TRY(output.take_streams());
  const os::Fd null_device(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (::dup2(null_device.get(), STDIN_FILENO) < 0) {
    return errno_error(errno, "--detach: opening /dev/null");
  }
  return run_job(std::move(spec), false, warnings);
}

// Prints what comes until the ranks run, so that a job that cannot start says why here.
Result<int> run_detached(const JobSpec& spec, const std::vector<std::string>& warnings) {
  const auto folders = control_folders("");
  auto output = OutputFile::make(folders);
  if (!output) return output.error().with_context("--detach");
  auto reader = OutputReader::open(folders, ::getpid());
  if (!reader) return reader.error().with_context("--detach");
  const pid_t job = ::fork();
  if (job < 0) return errno_error(errno, "--detach: starting a process");
  if (job == 0) return run_without_terminal(spec, warnings, *output);
  output->leave();
  Follow follow;
  follow.job = job;
  follow.to = stderr;
  follow.until_running = true;
  follow.ended = [job]() -> std::optional<int> {
    int status = 0;
    if (::waitpid(job, &status, WNOHANG) != job) return std::nullopt;
    return WIFSIGNALED(status) ? exit_code_of_signal(WTERMSIG(status)) : WEXITSTATUS(status);
  };
  const auto code = follow_job(folders, std::move(*reader), follow);
  if (!code) return code.error();
  if (*code) return **code;
  const std::string number = std::to_string(job);
  std::fprintf(stderr,
               "horarun: the ranks run as job %s; horarun attach %s follows their output, horarun "
               "cancel %s ends them\n",
               number.c_str(), number.c_str(), number.c_str());
  return print(number + "\n");
}

Result<int> execute(const ShowText& command) { return print(command.text); }

Result<int> execute(const CheckBuild& command) {
  return print(command.json ? check_build_json()
                            : check_build_text(command.verbose, command.as_horovodrun));
}

Result<int> execute(const Launch& command) {
  if (command.detach && !command.dry_run) return run_detached(command.job, command.warnings);
  return run_job(command.job, command.dry_run, command.warnings, command.platform);
}

// The worker comes with the bundle, so any directory will do; "/" exists on every host.
Result<int> execute(const Smoke& command) {
  JobSpec spec = command.job;
  spec.command = {"hora-smoke"};
  if (spec.json) spec.command.push_back("--json");
  spec.prefix_output = false;
  spec.stdin_policy = StdinPolicy::kNone;
  if (spec.working_directory.empty()) spec.working_directory = "/";
  if (command.detach && !command.dry_run) return run_detached(spec, command.warnings);
  return run_job(std::move(spec), command.dry_run, command.warnings, command.platform);
}

Result<rendezvous::ServeOptions> serve_options(const RunRendezvous& command) {
  rendezvous::ServeOptions options;
  const auto address = parse_ip_address(command.address);
  if (!address) return address.error().with_context("--address");
  options.server.addresses = {{*address, command.port}};
  options.end_with = command.end_with;
  if (!command.token_file.empty()) {
    auto token = rendezvous::read_token_file(command.token_file);
    if (!token) return token.error().with_context("--token-file");
    options.access.token = std::move(*token);
  }
  for (const std::string& text : command.allow) {
    const auto network = parse_cidr(text);
    if (!network) return network.error().with_context("--allow");
    options.access.allow.push_back(*network);
  }
  return options;
}

Result<int> execute(const RunRendezvous& command) {
  if (command.verbose) os::set_log_level(os::LogLevel::kDebug);
  auto options = serve_options(command);
  if (!options) return options.error();
  HORA_TRY(rendezvous::serve_rendezvous(std::move(*options)));
  return int{kExitOk};
}

// Runs one rank per host that only needs a shell; --runtime host ships no bundle to it. To find out
// which entries are in use, the rank executes the agent's own program.
Result<int> execute(const ManageCache& command) {
  JobSpec spec = command.job;
  spec.manages_cache = true;
  spec.cache_limits = {};
  // With several hosts each line has the name, with one none; every JSON object has it.
  spec.prefix_output = false;
  const bool named = spec.hosts.size() > 1 || spec.json;
  const std::string format =
      std::string(named ? " --host \"$HOROVOD_HOSTNAME\"" : "") + (spec.json ? " --json" : "");
  std::string script = "exec /proc/$PPID/exe list-cache" + format;
  if (command.action == ManageCache::Action::kClean) {
    script = "exec /proc/$PPID/exe clean-cache" + format;
    if (const auto& age = command.limits.max_age) {
      script += " --max-age " + std::to_string(age->count());
    }
    if (const auto& bytes = command.limits.max_bytes) {
      script += " --max-size " + std::to_string(*bytes);
    }
    if (command.dry_run) script += " --dry-run";
  }
  spec.command = {"/bin/sh", "-c", script};
  spec.num_proc = 0;
  for (Host& host : spec.hosts) host.slots = 1;
  if (spec.hosts.empty()) spec.num_proc = 1;
  spec.runtime = RuntimeKind::kHost;
  spec.stdin_policy = StdinPolicy::kNone;
  spec.working_directory = "/";
  return run_job(std::move(spec), false, {});
}

Result<int> execute(const RunDoctor& command) {
  if (command.job.verbose) os::set_log_level(os::LogLevel::kDebug);
  auto installation = find_installation();
  if (!installation) return installation.error();
  announce_engine(command.job);
  JobSpec job = command.job;
  HORA_TRY(complete_working_directory(job));
  return examine(job, *installation, split_environment(environ), command.deep, stdout);
}

Result<int> execute(const MergeTimelines& command) {
  const auto merged = merge_timelines(command.files, command.output);
  if (!merged) return merged.error();
  return print(*merged, os::is_standard_output(command.output) ? stderr : stdout);
}

Result<int> execute(const BundleReport& command) {
  BundleParts parts{HORA_VERSION, rfc3339_now(), "", "", split_environment(environ)};
  auto record = read_text_file(command.record);
  if (!record) return make_error(ErrorCode::kUsage, record.error().message);
  parts.record = std::move(*record);
  // Checked before the examination, which takes a while.
  if (const auto good = os::check_writable(command.output); !good) {
    return good.error().with_context("-o");
  }
  auto hosts = hosts_of_record(parts.record);
  if (!hosts) return hosts.error().with_context(command.record);
  JobSpec spec = command.doctor.job;
  if (spec.hosts.empty()) spec.hosts = std::move(*hosts);
  auto installation = find_installation();
  if (!installation) return installation.error();
  doctor::Doctor doctor(spec, std::move(*installation), parts.environment, command.doctor.deep);
  if (auto examination = doctor.run()) {
    parts.examination = doctor::report_json(*examination, doctor::find_problems(*examination));
  } else {
    // The record alone is worth a bundle.
    std::fprintf(stderr, "horarun: warning: the hosts could not be examined: %s\n",
                 examination.error().message.c_str());
  }
  const auto bundle = bundle_report(parts);
  if (!bundle) return bundle.error().with_context(command.record);
  HORA_TRY(write_private_file(*bundle, command.output));
  return print(command.output + ": " + std::to_string(bundle->size()) + " bytes\n");
}

// Reads from a terminal, a file that only its owner can read, or a pipe.
Result<std::string> read_join_source(const std::string& source) {
  if (source.starts_with(kJoinScheme)) return source;
  if (source == "-" && ::isatty(STDIN_FILENO) == 1) {
    std::fputs("horarun: paste what horarun --listen printed: ", stderr);
  }
  os::Fd opened;
  if (source != "-") {
    opened = os::Fd(::open(source.c_str(), O_RDONLY | O_CLOEXEC));
    if (!opened.valid()) {
      const Error why = errno_error(errno, "--join: opening " + source);
      return make_error(ErrorCode::kUsage, why.message);
    }
    HORA_TRY(os::check_secret_file(opened.get(), "--join: " + source));
  }
  // A script may have more to read after the line.
  return os::read_line(opened.valid() ? opened.get() : STDIN_FILENO, "--join", kLongestJoinLine);
}

Result<JoinOptions> options_to_join(const Join& command) {
  JoinOptions options;
  if (command.platform) {
    return options_to_join(*command.platform, command.timeout.value_or(options.launcher_wait));
  }
  auto text = read_join_source(command.source);
  if (!text) return std::move(text).error();
  auto url = parse_join_url(*text);
  if (!url) return url.error().with_context("--join");
  options.url = *std::move(url);
  options.timeout = command.timeout.value_or(options.timeout);
  options.slots = slots_here(command.slots);
  return options;
}

Result<int> execute(const Join& command) {
  if (command.verbose) os::set_log_level(os::LogLevel::kDebug);
  const auto options = options_to_join(command);
  if (!options) return options.error();
  const auto code = join_job(*options);
  if (!code) return code.error().with_context(command.platform ? "node 0" : "--join");
  return code;
}

// Other users see command lines. A process list of the first millisecond has it already; hence the
// line that --listen prints uses a pipe. The kernel shows these very bytes, so overwriting them
// needs no new process.
void hide_join_url(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    char* const secret = std::strstr(argv[i], kJoinScheme.data());
    if (secret == nullptr) continue;
    for (char* c = secret + kJoinScheme.size(); *c != '\0'; ++c) *c = '*';
  }
}

Result<int> execute(const AskJobs& command) {
  return ask_jobs(command, variable("XDG_RUNTIME_DIR").value_or(""));
}

Result<int> execute(const Explain& command) {
  if (command.code == "events") return print(std::string(kEventSchema));
  const auto text = explain(command.code);
  return text ? print(*text) : text.error();
}

// A closed standard stream would give its number to one of our files, which would then receive the
// output. A placeholder reads as empty and refuses writes.
void hold_standard_streams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    // NOLINTNEXTLINE(android-cloexec-open): programs that we start inherit it.
    if (::fcntl(fd, F_GETFD) < 0) (void)::open("/dev/null", O_RDONLY);
  }
}

bool has_program(std::string_view name) {
  return !search_program(name, variable("PATH").value_or(""), AT_FDCWD).path.empty();
}

bool is_this_machine(const std::string& host) { return is_named_as_this_machine({host, "", {}}); }

std::optional<std::string> answer(const std::vector<std::string>& argv) {
  constexpr std::chrono::milliseconds kTimeout{3'000};
  const auto run = run_captured(argv, kTimeout);
  return run && run->exit_code == 0 ? std::optional(run->output) : std::nullopt;
}

std::vector<std::string> variable_names() {
  std::vector<std::string> names;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    names.emplace_back(text.substr(0, text.find('=')));
  }
  return names;
}

}  // namespace

int main(int argc, char** argv) {
  // The first two are for the ranks; outside a job they have no effect. SIGQUIT asks where a job
  // stands, and ends none: the job answers when there is one.
  sigset_t early;
  sigemptyset(&early);
  for (const int signal : {SIGUSR1, SIGUSR2, SIGQUIT}) sigaddset(&early, signal);
  hold_signals(early);
  hold_standard_streams();
  // At the limit of a file's size (ulimit -f), write() fails like on a full disk instead of ending
  // the program.
  ::signal(SIGXFSZ, SIG_IGN);
  os::give_threads_stacks();
  os::exit_when_out_of_resources("horarun", kExitLauncher);
  const ProcessInputs inputs{variable, read_text_file, read_own_text_file, has_program,
                             has_file, variable_names, is_this_machine,    answer};
  errors_are_events = asks_for_events(argc, argv, inputs);
  const auto command = parse_command_line(argc, argv, inputs);
  if (!command) return fail(command.error());
  // It has been read; the agent of this machine and its ranks inherit what is left.
  for (const char* secret : {"HORA_JOIN_TOKEN", "HORA_JOIN_TOKEN_FILE"}) ::unsetenv(secret);
  if (std::holds_alternative<Join>(*command)) hide_join_url(argc, argv);
  if (!runs_job(*command)) release_signal(SIGQUIT);
  const auto code = std::visit([](const auto& chosen) { return execute(chosen); }, *command);
  return code ? *code : fail(code.error());
}
