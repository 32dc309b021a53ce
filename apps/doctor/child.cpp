// SPDX-License-Identifier: Apache-2.0
// Runs a program for its answer, within a time limit. Programs that are asked may hang in a driver
// or a dead file system, so even a process that cannot be killed must not block the examination.
#include "child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <thread>

#include "rendezvous/base/time.h"
#include "rendezvous/os/fd.h"
#include "rendezvous/os/time_until.h"

extern char** environ;

namespace hora::doctor {

namespace {

using os::Pipe;
constexpr std::size_t kMostOutput = 256 * 1024;
constexpr std::size_t kMostErrors = 4 * 1024;
// The wait between SIGKILL and the end of the process.
constexpr std::chrono::milliseconds kDying{2'000};

std::vector<std::string> environment_of(const EnvironmentList& added,
                                        const std::vector<std::string>& drop) {
  std::vector<std::string> out;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    // An entry of `drop` is a prefix of a variable's name.
    const bool dropped = std::any_of(drop.begin(), drop.end(), [&](const std::string& prefix) {
      return text.rfind(prefix, 0) == 0;
    });
    const bool replaced = std::any_of(added.begin(), added.end(), [&](const auto& variable) {
      return text.rfind(variable.first + "=", 0) == 0;
    });
    if (!dropped && !replaced) out.push_back(text);
  }
  for (const auto& [name, value] : added) out.push_back(name + "=" + value);
  return out;
}

std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> out;
  for (const std::string& word : words) out.push_back(const_cast<char*>(word.c_str()));
  out.push_back(nullptr);
  return out;
}

pid_t start(const std::vector<std::string>& command, const std::vector<std::string>& environment,
            const Pipe& out, const Pipe& errors, int& failed) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawnattr_init(&attributes);
  ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, out.write_end.get(), 1);
  ::posix_spawn_file_actions_adddup2(&actions, errors.write_end.get(), 2);
  // A process group of its own, so that its children can be killed with it.
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  const auto argv = pointers(command);
  const auto envp = pointers(environment);
  pid_t pid = -1;
  failed = ::posix_spawnp(&pid, argv[0], &actions, &attributes, argv.data(), envp.data());
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  return failed == 0 ? pid : -1;
}

// Returns a descriptor that becomes readable when the process has ended. The process is not reaped
// by that, so its pid stays its own. A thread waits for it, since not every kernel has process
// descriptors; a process that cannot even be killed blocks only that thread.
os::Fd watch_end(pid_t pid) {
  os::Fd ours(::eventfd(0, EFD_CLOEXEC));
  const int theirs = ::fcntl(ours.get(), F_DUPFD_CLOEXEC, 0);
  std::thread([pid, ended = std::make_shared<os::Fd>(theirs)] {
    siginfo_t info{};
    while (::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT) != 0 &&
           errno == EINTR) {
    }
    const std::uint64_t one = 1;
    static_cast<void>(!::write(ended->get(), &one, sizeof one));
  }).detach();
  return ours;
}

// Returns false at the end of the stream.
bool read_some(const os::Fd& from, std::string& to, std::size_t most, bool keep_end) {
  char bytes[4096];
  const ssize_t got = ::read(from.get(), bytes, sizeof bytes);
  // Output keeps its beginning, errors keep their end.
  if (got <= 0) return got < 0 && errno == EINTR;
  if (keep_end || to.size() < most) to.append(bytes, static_cast<std::size_t>(got));
  if (keep_end && to.size() > most) to.erase(0, to.size() - most);
  return true;
}

// Collects until the process has ended or time is up. Its children may hold the pipes open for
// longer, so the pipes' end is not awaited.
bool collect(const os::Fd& ended, const Pipe& out, const Pipe& errors, Clock::time_point deadline,
             Answer& answer) {
  std::array<pollfd, 3> entries{{{out.read_end.get(), POLLIN, 0},
                                 {errors.read_end.get(), POLLIN, 0},
                                 {ended.get(), POLLIN, 0}}};
  bool over = false;
  while (true) {
    const int ready =
        // After the end, read only the remaining bytes.
        ::poll(entries.data(), entries.size(), over ? 0 : os::milliseconds_until(deadline));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return over;
    if (entries[0].revents != 0 && !read_some(out.read_end, answer.output, kMostOutput, false)) {
      entries[0].fd = -1;
    }
    if (entries[1].revents != 0 && !read_some(errors.read_end, answer.errors, kMostErrors, true)) {
      entries[1].fd = -1;
    }
    if (entries[2].revents != 0) {
      over = true;
      entries[2].fd = -1;
    }
    if (!over && Clock::now() >= deadline) return false;
  }
}

}  // namespace

Answer ask(const std::vector<std::string>& command, std::chrono::milliseconds timeout,
           const EnvironmentList& environment, const std::vector<std::string>& drop) {
  Answer answer;
  Pipe out, errors;
  if (!out.open() || !errors.open()) return answer;
  const auto deadline = Clock::now() + timeout;
  int failed = 0;
  const pid_t pid = start(command, environment_of(environment, drop), out, errors, failed);
  out.write_end.reset();
  errors.write_end.reset();
  if (pid < 0) {
    // The exit code that a shell would report.
    if (failed == ENOENT) answer.exit_code = 127;
    return answer;
  }
  const os::Fd ended = watch_end(pid);
  if (!collect(ended, out, errors, deadline, answer)) {
    answer.timed_out = true;
    ::kill(-pid, SIGKILL);
    pollfd entry{ended.get(), POLLIN, 0};
    // The process hangs in the kernel; leave it to the thread.
    if (::poll(&entry, 1, static_cast<int>(kDying.count())) != 1) return answer;
  }
  int status = 0;
  if (::waitpid(pid, &status, 0) != pid || answer.timed_out) return answer;
  if (WIFEXITED(status)) answer.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) answer.signal = WTERMSIG(status);
  return answer;
}

}  // namespace hora::doctor
