// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/launcher/transports/shell_run.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>

#include "rendezvous/base/time.h"
#include "rendezvous/os/fd.h"

extern char** environ;

namespace hora::test {

namespace {

struct Pipe {
  os::Fd read;
  os::Fd write;
  Pipe() {
    int fds[2];
    if (::pipe2(fds, O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
    read = os::Fd(fds[0]);
    write = os::Fd(fds[1]);
  }
};

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (const auto& text : texts) out.push_back(const_cast<char*>(text.c_str()));
  out.push_back(nullptr);
  return out;
}

void read_into(os::Fd& fd, std::string& out) {
  char buffer[65536];
  const ssize_t got = ::read(fd.get(), buffer, sizeof buffer);
  if (got > 0) out.append(buffer, static_cast<std::size_t>(got));
  if (got == 0 || (got < 0 && errno != EINTR)) fd.reset();
}

}  // namespace

ShellRun run_program(const std::vector<std::string>& argv, const std::string& input,
                     const std::optional<std::vector<std::string>>& environment,
                     std::chrono::milliseconds limit) {
  ::signal(SIGPIPE, SIG_IGN);
  Pipe in, out, err;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in.read.get(), 0);
  posix_spawn_file_actions_adddup2(&actions, out.write.get(), 1);
  posix_spawn_file_actions_adddup2(&actions, err.write.get(), 2);
  auto arguments = pointers(argv);
  std::vector<char*> variables;
  if (environment) variables = pointers(*environment);
  pid_t pid = -1;
  const int code = ::posix_spawnp(&pid, argv[0].c_str(), &actions, nullptr, arguments.data(),
                                  environment ? variables.data() : environ);
  posix_spawn_file_actions_destroy(&actions);
  if (code != 0) throw std::runtime_error("cannot start " + argv[0]);
  in.read.reset();
  out.write.reset();
  err.write.reset();
  ::fcntl(in.write.get(), F_SETFL, O_NONBLOCK);

  ShellRun run;
  std::size_t sent = 0;
  const auto deadline = Clock::now() + limit;
  while (out.read.valid() || err.read.valid()) {
    if (sent == input.size()) in.write.reset();
    pollfd fds[3] = {
        {in.write.get(), POLLOUT, 0}, {out.read.get(), POLLIN, 0}, {err.read.get(), POLLIN, 0}};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) {
      run.timed_out = true;
      ::kill(pid, SIGKILL);
      break;
    }
    ::poll(fds, 3, static_cast<int>(left.count()));
    if (fds[0].revents != 0) {
      const ssize_t wrote = ::write(in.write.get(), input.data() + sent, input.size() - sent);
      if (wrote > 0) sent += static_cast<std::size_t>(wrote);
      if (wrote < 0 && errno != EAGAIN) sent = input.size();
    }
    if (fds[1].revents != 0) read_into(out.read, run.out);
    if (fds[2].revents != 0) read_into(err.read, run.err);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  run.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return run;
}

std::vector<std::vector<std::string>> shells_here(bool posix_only) {
  std::vector<std::vector<std::string>> found;
  const std::vector<std::vector<std::string>> posix = {
      {"sh", "-c"},  {"dash", "-c"}, {"bash", "-c"}, {"busybox", "sh", "-c"},
      {"ksh", "-c"}, {"mksh", "-c"}, {"yash", "-c"}, {"posh", "-c"},
      {"zsh", "-c"}};
  const std::vector<std::vector<std::string>> others = {
      {"bsd-csh", "-c"}, {"tcsh", "-c"}, {"fish", "-c"}};
  auto consider = [&found](const std::vector<std::string>& shell) {
    for (const char* folder : {"/bin/", "/usr/bin/"}) {
      if (::access((folder + shell[0]).c_str(), X_OK) == 0) {
        found.push_back(shell);
        return;
      }
    }
  };
  for (const auto& shell : posix) consider(shell);
  if (!posix_only) {
    for (const auto& shell : others) consider(shell);
  }
  return found;
}

}  // namespace hora::test
