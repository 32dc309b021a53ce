// SPDX-License-Identifier: Apache-2.0
// --mpi leaves starting and watching the ranks to mpirun. horarun has three things to do before it
// becomes mpirun by execve(): find out which MPI that is, since Open MPI's options and MPICH's
// differ; put the runtime on the hosts and learn which network interface they share, by a launch
// without ranks (MpiPreparation); and write the command.
#include "launcher/supervisor/mpirun.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "launcher/failures/failure_code.h"
#include "launcher/fleet/local_hosts.h"
#include "launcher/plan/mpirun_plan.h"
#include "launcher/plan/plan.h"
#include "launcher/process/captured_run.h"
#include "launcher/process/program_search.h"
#include "launcher/runs/mpi_preparation.h"
#include "launcher/supervisor/supervisor.h"
#include "launcher/text/user_input.h"
#include "rendezvous/base/text.h"
#include "rendezvous/base/time.h"
#include "rendezvous/os/fd.h"

namespace hora::launcher {

namespace {

using Words = std::vector<std::string>;

std::vector<char*> pointers(const Words& words) {
  std::vector<char*> out;
  for (const std::string& word : words) out.push_back(const_cast<char*>(word.c_str()));
  out.push_back(nullptr);
  return out;
}

Words entries(const EnvironmentList& environment) {
  Words out;
  for (const auto& [name, value] : environment) out.push_back(name + "=" + value);
  return out;
}

std::string path_of(const EnvironmentList& environment) {
  return value_in(environment, "PATH").value_or("/usr/local/bin:/usr/bin:/bin");
}

// `mpirun --version` only prints; the rest is for a slow network file system.
constexpr Milliseconds kAnswerTimeout{30'000};

struct Mpirun {
  std::string path;
  const MpiLauncher* launcher = nullptr;
};

Result<Mpirun> find_mpirun(const EnvironmentList& environment) {
  auto path = find_program("mpirun", path_of(environment), AT_FDCWD);
  if (!path) {
    return make_error(
        ErrorCode::kUsage,
        "--mpi: there is no mpirun in $PATH; install Open MPI or MPICH, or omit --mpi: "
        "Hora starts ranks without it");
  }
  auto version = run_captured({*path, "--version"}, kAnswerTimeout);
  if (!version) return std::move(version).error().with_context("--mpi");
  if (version->exit_code != kExitOk) {
    return make_error(ErrorCode::kUsage, "--mpi: " + *path + " --version failed with exit code " +
                                             std::to_string(version->exit_code) + ": " +
                                             std::string(trim(version->output)));
  }
  auto launcher = find_mpi_launcher(version->output);
  if (!launcher) return std::move(launcher).error();
  return Mpirun{std::move(*path), *launcher};
}

// Where the libmpi of an installation in a folder of its own is.
std::string libraries_of(const std::string& mpirun) {
  std::error_code error;
  const auto prefix = std::filesystem::canonical(mpirun, error).parent_path().parent_path();
  if (error || prefix == "/usr") return "";
  for (const char* folder : {"lib", "lib64"}) {
    if (std::filesystem::exists(prefix / folder / "libmpi.so.40", error)) return prefix / folder;
  }
  return "";
}

bool all_local(const std::vector<Host>& hosts) {
  const std::vector<bool> local = find_local_hosts(hosts);
  return std::all_of(local.begin(), local.end(), [](bool each) { return each; });
}

// An ordinary launch up to the start of its ranks. Returns its exit code; it prints why it failed.
Result<int> prepare_hosts(const JobSpec& spec, const Installation& installation,
                          const EnvironmentList& environment, HostFindings& findings) {
  Supervisor supervisor(MpiPreparation::job_of(spec), installation, environment,
                        [&findings](RunContext context) {
                          return std::make_unique<MpiPreparation>(std::move(context), findings);
                        });
  return supervisor.run();
}

// Where mpirun itself gets /dev/null, because it has no option that gives it to the ranks.
bool reads_nothing(const JobSpec& spec, const MpiLauncher& launcher) {
  return spec.stdin_policy == StdinPolicy::kNone && launcher.stdin_none.empty();
}

Status read_nothing() {
  const os::Fd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!null.valid() || ::dup2(null.get(), STDIN_FILENO) < 0) {
    return errno_error(errno, "opening /dev/null");
  }
  return Ok{};
}

// Hydra makes no folders for the output of the ranks, and ends where one is missing.
Status make_output_folders(const JobSpec& spec, const MpiLauncher& launcher, int ranks) {
  if (spec.output_directory.empty() || !launcher.is_hydra) return Ok{};
  for (int rank = 0; rank < ranks; ++rank) {
    std::error_code error;
    const std::string folder = spec.output_directory + "/rank." + std::to_string(rank);
    std::filesystem::create_directories(folder, error);
    if (error) {
      return make_error(ErrorCode::kUsage, "--output-filename: " + folder + ": " + error.message());
    }
  }
  return Ok{};
}

// horarun holds them for the job; mpirun handles them itself. Pending ones would end it before it
// does.
void leave_held_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGUSR1, SIGUSR2, SIGQUIT}) sigaddset(&set, signal);
  const timespec at_once{};
  while (::sigtimedwait(&set, nullptr, &at_once) >= 0 || errno == EINTR) {
  }
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

// mpirun replaces this process, including any watcher in it: only the kernel can notify mpirun of
// an end, and only of its parent's.
Status end_with_parent(int pid) {
  if (::prctl(PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0) != 0) {
    return errno_error(errno, "--end-with: asking the kernel to report the parent's end");
  }
  if (::getppid() == pid) return Ok{};  // after the call: it does not report an earlier end
  if (::kill(pid, 0) != 0 && errno == ESRCH) {
    return make_error(ErrorCode::kFailed,
                      "process " + std::to_string(pid) + " has ended (--end-with)");
  }
  return make_error(ErrorCode::kUsage,
                    "--end-with: with --mpi PID must be the process that starts "
                    "horarun, found " +
                        std::to_string(pid));
}

}  // namespace

Result<std::string> mpirun_dry_run(const JobSpec& spec, const EnvironmentList& environment) {
  auto mpirun = find_mpirun(environment);
  if (!mpirun) return std::move(mpirun).error();
  const std::vector<Host> hosts = settle_named_slots(spec);
  auto plan = plan_job(hosts, spec.num_proc);
  if (!plan) return std::move(plan).error();
  HostFindings findings;
  const auto variables = mpirun_environment(environment, spec, *mpirun->launcher, findings);
  auto argv = plan_mpirun(spec, hosts, *mpirun->launcher, findings, variables);
  if (!argv) return std::move(argv).error();
  std::string text;
  for (const auto& [name, value] : variables) {
    if (name != mpirun->launcher->unbound_variable &&
        name != mpirun->launcher->ssh_arguments_variable) {
      continue;
    }
    text += name + "=" + quote_shell_words({value}) + " ";
  }
  text += quote_shell_words(*argv);
  if (reads_nothing(spec, *mpirun->launcher)) text += " </dev/null";
  text += "\n";
  if (spec.runtime == RuntimeKind::kHora) {
    text += "# at launch: the runtime's folders come first in PATH, LD_LIBRARY_PATH, PYTHONPATH\n";
  }
  if (spec.network_interfaces.empty() && plan->hosts.size() > 1) {
    text += "# at launch: the network interface between the hosts is chosen and added\n";
  }
  return text;
}

Result<int> run_by_mpirun(const JobSpec& spec, const Installation& installation,
                          const EnvironmentList& environment) {
  if (spec.end_with) HORA_TRY(end_with_parent(*spec.end_with));
  auto mpirun = find_mpirun(environment);
  if (!mpirun) return std::move(mpirun).error();
  const MpiLauncher& launcher = *mpirun->launcher;
  const std::vector<Host> hosts = settle_named_slots(spec);
  auto plan = plan_job(hosts, spec.num_proc);
  if (!plan) return std::move(plan).error();
  HostFindings findings;
  findings.mpi_libraries = libraries_of(mpirun->path);
  // Only for its errors, which come before anything starts. The hosts' findings are not there yet.
  auto argv = plan_mpirun(spec, hosts, launcher, findings, environment);
  if (!argv) return std::move(argv).error();
  if (all_local(hosts)) {
    // Else the preparation says it.
    if (spec.engine) std::fprintf(stderr, "horarun: %s\n", spec.engine->text.c_str());
    if (spec.runtime == RuntimeKind::kHora)
      findings.bundles = {installation.own().bundle_directory};
  } else {
    auto prepared = prepare_hosts(spec, installation, environment, findings);
    if (!prepared) return std::move(prepared).error().with_context("preparing the hosts");
    if (*prepared != kExitOk) return *prepared;
  }
  const auto variables = mpirun_environment(environment, spec, launcher, findings);
  // The command that runs: with the findings of the hosts.
  argv = plan_mpirun(spec, hosts, launcher, findings, variables);
  if (!argv) return std::move(argv).error();
  if (spec.verbose) std::fprintf(stderr, "horarun: %s\n", quote_shell_words(*argv).c_str());
  if (::chdir(spec.working_directory.c_str()) != 0) {
    return errno_error(errno, "the working directory " + quote(spec.working_directory));
  }
  HORA_TRY(make_output_folders(spec, launcher, plan->world_size));
  if (reads_nothing(spec, launcher)) HORA_TRY(read_nothing());
  // timeout(1), where mpirun has no time limit of its own.
  auto program = argv->front() == "mpirun"
                     ? Result<std::string>(mpirun->path)
                     : find_program(argv->front(), path_of(environment), AT_FDCWD);
  if (!program) return std::move(program).error().with_context("--timeout");
  // Called by its whole path, Open MPI 4 uses this installation on the other hosts, too.
  if (!findings.mpi_libraries.empty() && argv->front() == "mpirun") argv->front() = *program;
  const Words values = entries(variables);
  leave_held_signals();
  ::execve(program->c_str(), pointers(*argv).data(), pointers(values).data());
  return errno_error(errno, "executing " + *program);
}

}  // namespace hora::launcher
