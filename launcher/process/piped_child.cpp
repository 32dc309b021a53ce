// SPDX-License-Identifier: Apache-2.0
// A child process with pipes (or one socketpair) for its streams. It is the leader of its own
// process group, dies with the launcher, and never outlives the object.
#include "launcher/process/piped_child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <utility>

#include "launcher/process/env_words.h"
#include "launcher/process/program_search.h"
#include "launcher/process/strays.h"
#include "launcher/protocol/exit_code.h"
#include "rendezvous/base/time.h"
#include "rendezvous/os/random.h"
#include "rendezvous/os/time_until.h"

extern char** environ;

namespace hora::launcher {

namespace {

constexpr std::chrono::milliseconds kSweepTimeout{4'000};  // longer than the guard's own
constexpr std::chrono::milliseconds kMarkedTimeout{1'000};
constexpr int kLookAgainMs = 5;  // where the kernel has no pidfds

struct Ends {
  os::Fd ours;
  os::Fd theirs;
};

// Only our end is non-blocking: most programs cannot handle EAGAIN on their own streams.
Result<Ends> make_pipe(bool child_reads) {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) return errno_error(errno, "making a pipe");
  Ends ends;
  ends.ours = os::Fd(fds[child_reads ? 1 : 0]);
  ends.theirs = os::Fd(fds[child_reads ? 0 : 1]);
  ::fcntl(ends.ours.get(), F_SETFL, O_NONBLOCK);
  return ends;
}

// A proxy command gets one socket for stdin and stdout, because libssh takes one descriptor.
Result<Ends> make_socket() {
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) {
    return errno_error(errno, "making a socketpair");
  }
  ::fcntl(fds[0], F_SETFL, O_NONBLOCK);
  return Ends{os::Fd(fds[0]), os::Fd(fds[1])};
}

// No user can answer a prompt of the child, so an ssh client must not open a window either.
std::vector<char*> environment_of(const CommandWords& command, const std::string& mark) {
  std::vector<char*> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (std::string_view(*variable).rfind("SSH_ASKPASS_REQUIRE=", 0) != 0 &&
        !is_replaced(command, *variable)) {
      variables.push_back(*variable);
    }
  }
  static char never[] = "SSH_ASKPASS_REQUIRE=never";
  variables.push_back(never);
  for (const std::string& variable : command.set) {
    variables.push_back(const_cast<char*>(variable.c_str()));
  }
  if (!mark.empty()) variables.push_back(const_cast<char*>(mark.c_str()));
  variables.push_back(nullptr);
  return variables;
}

}  // namespace

// A client on a dead link would outlive a launcher that was killed.
Result<PipedChild> PipedChild::start(const std::vector<std::string>& argv, bool one_socket) {
  const auto starter = [](const SpawnRequest& request, std::array<int, 2>) {
    SpawnOutcome spawned = spawn(request);
    return Guarded{spawned.pid, std::move(spawned.pidfd), {}, spawned.failed_stage, spawned.errnum};
  };
  return start_by(starter, argv, one_socket);
}

Result<PipedChild> PipedChild::start_guarded(const std::vector<std::string>& argv,
                                             std::chrono::milliseconds timeout) {
  const auto starter = [timeout](const SpawnRequest& request, std::array<int, 2> our_ends) {
    return guard_program(request, our_ends, timeout);
  };
  return start_by(starter, argv);
}

Result<PipedChild> PipedChild::start_confined(const std::vector<std::string>& argv) {
  const auto starter = [](const SpawnRequest& request, std::array<int, 2>) {
    return confine_program(request);
  };
  const std::string mark = "HORA_SCRIPT_MARK=" + os::random_token();
  auto child = start_by(starter, argv, false, mark);
  if (child) child->mark_ = mark;
  return child;
}

// Resolving the program here, in the parent, gives an error that names the search path.
Result<PipedChild> PipedChild::start_by(const Starter& starter,
                                        const std::vector<std::string>& argv, bool one_socket,
                                        const std::string& mark) {
  const CommandWords command = without_env(argv);
  const char* path = ::getenv("PATH");
  auto program =
      find_program(command.argv.at(0), path != nullptr ? path : "/usr/bin:/bin", AT_FDCWD);
  if (!program) return std::move(program).error();
  auto in = one_socket ? make_socket() : make_pipe(true);
  if (!in) return std::move(in).error();
  Ends out;
  if (!one_socket) {
    auto made = make_pipe(false);
    if (!made) return std::move(made).error();
    out = *std::move(made);
  }
  auto err = make_pipe(false);
  if (!err) return std::move(err).error();

  std::vector<char*> arguments;
  for (const std::string& word : command.argv) {
    arguments.push_back(const_cast<char*>(word.c_str()));
  }
  arguments.push_back(nullptr);
  auto variables = environment_of(command, mark);

  SpawnRequest request;
  request.program = program->c_str();
  request.argv = arguments.data();
  request.envp = variables.data();
  request.stdin_fd = in->theirs.get();
  request.stdout_fd = one_socket ? in->theirs.get() : out.theirs.get();
  request.stderr_fd = err->theirs.get();
  request.die_with_parent = true;
  request.want_pidfd = true;
  Guarded outcome = starter(request, {out.ours.get(), err->ours.get()});
  if (outcome.failed_stage != SpawnStage::kNone) {
    Error error = errno_error(outcome.errnum,
                              std::string(spawn_stage_name(outcome.failed_stage)) + " " + *program);
    error.message += carriage_return_note(command.argv);
    return error;
  }
  PipedChild child;
  child.pid_ = outcome.pid;
  child.pidfd_ = std::move(outcome.pidfd);
  child.lifeline_ = std::move(outcome.lifeline);
  child.stdin_fd = std::move(in->ours);
  child.stdout_fd = std::move(out.ours);
  child.stderr_fd = std::move(err->ours);
  return child;
}

PipedChild::PipedChild(PipedChild&& other) noexcept { *this = std::move(other); }

PipedChild& PipedChild::operator=(PipedChild&& other) noexcept {
  if (this == &other) return *this;
  end();
  stdin_fd = std::move(other.stdin_fd);
  stdout_fd = std::move(other.stdout_fd);
  stderr_fd = std::move(other.stderr_fd);
  pidfd_ = std::move(other.pidfd_);
  lifeline_ = std::move(other.lifeline_);
  // Moved-from objects keep no pid, so their destructor signals no process.
  status_ = std::exchange(other.status_, std::nullopt);
  pid_ = std::exchange(other.pid_, -1);
  mark_ = std::exchange(other.mark_, {});
  return *this;
}

PipedChild::~PipedChild() { end(); }

std::optional<int> PipedChild::try_wait() {
  if (status_ || pid_ < 0) return status_;
  int status = 0;
  const pid_t ended = ::waitpid(pid_, &status, WNOHANG);
  if (ended == 0 || (ended < 0 && errno == EINTR)) return std::nullopt;
  // ECHILD: some other code reaped it, so its status is unknown.
  if (ended < 0) {
    status_ = kExitClientFailed;
  } else {
    status_ = WIFEXITED(status) ? WEXITSTATUS(status) : exit_code_of_signal(WTERMSIG(status));
  }
  return status_;
}

// WNOWAIT leaves the zombie: its number stays taken, so a later kill cannot hit another process.
std::optional<int> PipedChild::ended() const {
  if (status_ || pid_ < 0) return status_;
  siginfo_t info{};
  const int looked = ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT);
  if (looked != 0) {
    if (errno == EINTR) return std::nullopt;
    return kExitClientFailed;  // as in try_wait
  }
  if (info.si_pid == 0) return std::nullopt;
  return info.si_code == CLD_EXITED ? info.si_status : exit_code_of_signal(info.si_status);
}

// The negative pid names the whole group: clients fork helpers.
void PipedChild::ask_to_end(int signal) {
  if (pid_ > 0 && !status_) ::kill(-pid_, signal);
}

// Reaped by its new parent.
void PipedChild::leave() {
  pid_ = -1;
  end();
}

// The guard is done within milliseconds, unless something is stuck in the kernel or has stopped it.
void PipedChild::await_sweep() const {
  const auto deadline = Clock::now() + kSweepTimeout;
  while (!ended() && Clock::now() < deadline) {
    pollfd watched{pidfd_.get(), POLLIN, 0};  // a negative one is skipped
    ::poll(&watched, 1, pidfd_.valid() ? os::milliseconds_until(deadline) : kLookAgainMs);
  }
}

void PipedChild::end() {
  lifeline_.reset();
  const bool is_confined = !mark_.empty();
  if (pid_ > 0 && !status_ && is_confined) await_sweep();
  stdin_fd.reset();
  stdout_fd.reset();
  stderr_fd.reset();
  pidfd_.reset();
  if (pid_ < 0) return;
  if (!status_) {
    // The pid and its group stay reserved until the child is reaped, so this signal cannot hit
    // another process.
    ::kill(-pid_, SIGKILL);
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    // A guard that was killed has swept nothing.
    if (is_confined && WIFSIGNALED(status)) kill_marked(mark_, kMarkedTimeout);
  }
  pid_ = -1;
}

}  // namespace hora::launcher
