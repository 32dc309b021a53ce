// SPDX-License-Identifier: Apache-2.0
// The guard is a fork of this process, and no program of its own: it would have to be found and
// started while the user waits. It does little, because another thread may have held any lock when
// this one forked.
#include "launcher/process/guard.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <optional>
#include <utility>

#include "launcher/process/strays.h"
#include "launcher/protocol/exit_code.h"
#include "rendezvous/base/time.h"
#include "rendezvous/os/process_end.h"
#include "rendezvous/os/time_until.h"

namespace hora::launcher {

namespace {

constexpr int kGuardLookMs = 50;                           // where the kernel has no pidfds
constexpr std::chrono::milliseconds kEndTimeout{8'000};    // from SIGTERM to SIGKILL
constexpr std::chrono::milliseconds kSweepTimeout{3'000};  // what is left is stuck in the kernel

// The guard's report about the start.
struct Report {
  int stage = 0;  // a SpawnStage, without padding after it
  int errnum = 0;
};

// A process with another end of the program's pipes, or of a connection, would keep it open.
void close_all_but(std::array<int, 4> kept) {
  std::sort(kept.begin(), kept.end());
  const auto close_from = [](int first, int end) {
    if (first < end && ::syscall(SYS_close_range, first, end - 1, 0) != 0) {
      for (int fd = first; fd < std::min(end, 4096); ++fd) ::close(fd);  // Linux < 5.9
    }
  };
  int first = 0;
  for (const int fd : kept) {
    if (fd < first) continue;
    close_from(first, fd);
    first = fd + 1;
  }
  close_from(first, INT32_MAX);
}

// The program's end, as the guard's exit code. Waits until then, or until `deadline`.
std::optional<int> wait_for(pid_t program, int pidfd, int lifeline, Clock::time_point deadline) {
  while (true) {
    int status = 0;
    const pid_t ended = ::waitpid(program, &status, WNOHANG);
    if (ended == program) {
      return WIFEXITED(status) ? WEXITSTATUS(status) : exit_code_of_signal(WTERMSIG(status));
    }
    if (ended < 0 && errno != EINTR) return int{kExitClientFailed};
    int pause = os::milliseconds_until(deadline);
    if (pause == 0) return std::nullopt;
    if (pidfd < 0) pause = std::min(pause, kGuardLookMs);
    pollfd watched[] = {{pidfd, POLLIN, 0}, {lifeline, POLLIN, 0}};  // negative ones are skipped
    const int seen = ::poll(watched, 2, pause);
    if (seen > 0 && watched[1].revents != 0) return std::nullopt;
  }
}

// The guard's inputs from the process that forks it.
struct GuardTask {
  SpawnRequest request;
  std::array<int, 2> kept{-1, -1};
  int lifeline = -1;
  int report_to = -1;
};

// It reports the start, and closes all that it does not need only then: the descriptors that the
// program is to have are among the rest.
SpawnOutcome start_program(GuardTask& task) {
  // Out of the terminal's foreground: Ctrl-C is the launcher's to handle.
  ::setsid();
  ::prctl(PR_SET_NAME, "hora-guard");
  task.request.new_session = false;
  task.request.want_pidfd = true;
  SpawnOutcome program = spawn(task.request);
  const Report report{static_cast<int>(program.failed_stage), program.errnum};
  (void)!::write(task.report_to, &report, sizeof report);
  if (!program.ok()) ::_exit(kExitCannotExecute);
  close_all_but({task.lifeline, program.pidfd.get(), task.kept[0], task.kept[1]});
  return program;
}

// The lifeline's end is the launcher's end, for any reason. Then the program has `timeout` to end
// by itself, since it may have noticed as well.
[[noreturn]] void guard(GuardTask task, std::chrono::milliseconds timeout) {
  task.request.die_with_parent = false;
  const SpawnOutcome program = start_program(task);
  const int pidfd = program.pidfd.get();
  auto code = wait_for(program.pid, pidfd, task.lifeline, Clock::time_point::max());
  if (!code) code = wait_for(program.pid, pidfd, -1, Clock::now() + timeout);
  if (!code) {
    ::kill(0, SIGTERM);  // of which this process takes no notice
    code = wait_for(program.pid, pidfd, -1, Clock::now() + kEndTimeout);
  }
  // A program that has ended may have left processes that are none of ours to wait for.
  if (!code) ::kill(0, SIGKILL);
  ::_exit(code.value_or(kExitClientFailed));
}

// Memory may be had here: the C library keeps its allocator usable in a fork.
[[noreturn]] void confine(GuardTask task) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  task.request.die_with_parent = true;
  const SpawnOutcome program = start_program(task);
  const auto code =
      wait_for(program.pid, program.pidfd.get(), task.lifeline, Clock::time_point::max());
  ::close(task.lifeline);
  // Most leave no process, and then there is nothing to look for.
  if (!reap_all_children()) {
    StrayScope scope;
    scope.root = read_process(::getpid()).value_or(ProcessEntry{});
    scope.root.pid = ::getpid();
    (void)kill_strays(scope, "", kSweepTimeout);
  }
  ::_exit(code.value_or(exit_code_of_signal(SIGKILL)));
}

// All signals are blocked in this thread meanwhile, and for good in the guard.
class Blocked {
 public:
  Blocked() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~Blocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  Blocked(const Blocked&) = delete;
  Blocked& operator=(const Blocked&) = delete;

 private:
  sigset_t before_{};
};

// Waits for the guard's report: a program that cannot be started is an error here, and not an end
// that is noticed later.
template <typename Guard>
Guarded start_guard(const SpawnRequest& request, std::array<int, 2> kept, const Guard& guard) {
  Guarded made;
  int life[2] = {-1, -1}, report_pipe[2] = {-1, -1};
  const bool have_pipes = ::pipe2(life, O_CLOEXEC) == 0 && ::pipe2(report_pipe, O_CLOEXEC) == 0;
  const int pipes_errno = errno;
  os::Fd guards_end(life[0]), report_end(report_pipe[0]), report_to(report_pipe[1]);
  made.lifeline = os::Fd(life[1]);
  const auto failed = [&made](SpawnStage stage, int errnum) {
    made.failed_stage = stage;
    made.errnum = errnum;
    return std::move(made);
  };
  if (!have_pipes) return failed(SpawnStage::kDescriptors, pipes_errno);
  {
    const Blocked blocked;
    made.pid = ::fork();
    if (made.pid == 0) {
      made.lifeline.reset();
      guard(GuardTask{request, kept, guards_end.get(), report_to.get()});
    }
  }
  if (made.pid < 0) return failed(SpawnStage::kClone, errno);
  report_to.reset();
  Report report;
  ssize_t got = 0;
  while ((got = ::read(report_end.get(), &report, sizeof report)) < 0 && errno == EINTR) {
  }
  if (got != sizeof report) {  // the guard was killed
    report = {static_cast<int>(SpawnStage::kClone), ECHILD};
  }
  if (const auto stage = static_cast<SpawnStage>(report.stage); stage != SpawnStage::kNone) {
    while (::waitpid(made.pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    return failed(stage, report.errnum);
  }
  made.pidfd = os::Fd(static_cast<int>(::syscall(SYS_pidfd_open, made.pid, 0)));
  return made;
}

}  // namespace

Guarded guard_program(const SpawnRequest& request, std::array<int, 2> kept,
                      std::chrono::milliseconds timeout) {
  return start_guard(request, kept, [timeout](const GuardTask& task) { guard(task, timeout); });
}

Guarded confine_program(const SpawnRequest& request) {
  return start_guard(request, {-1, -1}, confine);
}

}  // namespace hora::launcher
