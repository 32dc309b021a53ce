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

#include "launcher/failures/exit_code.h"
#include "launcher/fleet/locality.h"
#include "launcher/plan/mpirun_plan.h"
#include "launcher/plan/plan.h"
#include "launcher/process/captured_run.h"
#include "launcher/process/program_search.h"
#include "launcher/runs/mpi_preparation.h"
#include "launcher/supervisor/supervisor.h"
#include "launcher/text/shell_words.h"
#include "rendezvous/base/duration.h"
#include "rendezvous/base/text.h"

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
  for (const auto& [name, value] : environment) {
    if (name == "PATH") return value;
  }
  return "/usr/local/bin:/usr/bin:/bin";
}

// `mpirun --version` only prints; the rest is for a slow network file system.
constexpr Milliseconds kAnswerPatience{30'000};

struct Mpirun {
  std::string path;
  MpiFlavour flavour = MpiFlavour::kOpenMpi;
};

Result<Mpirun> find_mpirun(const EnvironmentList& environment) {
  auto path = find_program("mpirun", path_of(environment), AT_FDCWD);
  if (!path) {
    return make_error(
        ErrorCode::kUsage,
        "--mpi: there is no mpirun in $PATH; install Open MPI or MPICH, or omit --mpi: "
        "Hora starts ranks without it");
  }
  auto version = run_captured({*path, "--version"}, kAnswerPatience);
  if (!version) return std::move(version).error().with_context("--mpi");
  if (version->exit_code != kExitOk) {
    return make_error(ErrorCode::kUsage, "--mpi: " + *path + " --version failed with exit code " +
                                             std::to_string(version->exit_code) + ": " +
                                             std::string(trim(version->output)));
  }
  auto flavour = parse_mpi_flavour(version->output);
  if (!flavour) return std::move(flavour).error();
  return Mpirun{std::move(*path), *flavour};
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

// horarun holds them for the job; mpirun deals with them itself. Those that have come already would
// end it before it does.
void leave_held_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGUSR1, SIGUSR2, SIGQUIT}) sigaddset(&set, signal);
  const timespec at_once{};
  while (::sigtimedwait(&set, nullptr, &at_once) >= 0 || errno == EINTR) {
  }
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

// mpirun takes the place of this process, and whatever would watch in it: only the kernel can tell
// mpirun of an end, and only of its parent's.
Status end_with_parent(int pid) {
  if (::prctl(PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0) != 0) {
    return errno_error(errno, "--end-with: asking the kernel to tell of the parent's end");
  }
  if (::getppid() == pid) return Ok{};  // behind the call: it tells of no end that came before
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
  const auto variables = mpirun_environment(environment, spec, mpirun->flavour, findings);
  auto argv = plan_mpirun(spec, hosts, mpirun->flavour, findings, variables);
  if (!argv) return std::move(argv).error();
  std::string text = quote_shell_words(*argv) + "\n";
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
  const std::vector<Host> hosts = settle_named_slots(spec);
  auto plan = plan_job(hosts, spec.num_proc);
  if (!plan) return std::move(plan).error();
  HostFindings findings;
  // Only for its errors, which come before anything starts. The hosts' findings are not there yet.
  auto argv = plan_mpirun(spec, hosts, mpirun->flavour, findings, environment);
  if (!argv) return std::move(argv).error();
  if (all_local(hosts)) {
    if (spec.runtime == RuntimeKind::kHora)
      findings.bundles = {installation.own().bundle_directory};
  } else {
    auto prepared = prepare_hosts(spec, installation, environment, findings);
    if (!prepared) return std::move(prepared).error().with_context("preparing the hosts");
    if (*prepared != kExitOk) return *prepared;
  }
  const auto variables = mpirun_environment(environment, spec, mpirun->flavour, findings);
  // The command that runs: with the findings of the hosts.
  argv = plan_mpirun(spec, hosts, mpirun->flavour, findings, variables);
  if (!argv) return std::move(argv).error();
  if (spec.verbose) std::fprintf(stderr, "horarun: %s\n", quote_shell_words(*argv).c_str());
  if (::chdir(spec.working_directory.c_str()) != 0) {
    return errno_error(errno, "the working directory " + quote(spec.working_directory));
  }
  const Words values = entries(variables);
  leave_held_signals();
  ::execve(mpirun->path.c_str(), pointers(*argv).data(), pointers(values).data());
  return errno_error(errno, "executing " + mpirun->path);
}

}  // namespace hora::launcher
