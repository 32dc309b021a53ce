// SPDX-License-Identifier: Apache-2.0
#include "launcher/build/isolated.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "launcher/protocol/exit_code.h"
#include "launcher/text/signal_name.h"
#include "rendezvous/base/time.h"
#include "rendezvous/os/fd.h"
#include "rendezvous/os/time_until.h"

namespace hora::launcher {

namespace {

// The answer ends with this byte, so half an answer is not mistaken for a whole one.
constexpr char kComplete = '\n';

[[noreturn]] void run_child(const std::function<std::string()>& work, int out) {
  const std::string answer = work() + kComplete;
  std::size_t written = 0;
  while (written < answer.size()) {
    const ssize_t count = ::write(out, answer.data() + written, answer.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) ::_exit(kExitFailed);
    written += static_cast<std::size_t>(count);
  }
  // Not exit(): libraries that were loaded may crash in their destructors.
  ::_exit(kExitOk);
}

// Reads to the end of the pipe. Returns false at the deadline.
bool read_answer(int in, Clock::time_point deadline, std::string& answer) {
  std::array<char, 4096> chunk{};
  for (;;) {
    const int left_ms = os::milliseconds_until(deadline);
    if (left_ms == 0) return false;
    pollfd item{in, POLLIN, 0};
    if (::poll(&item, 1, left_ms) <= 0) continue;
    const ssize_t count = ::read(in, chunk.data(), chunk.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return true;
    answer.append(chunk.data(), static_cast<std::size_t>(count));
  }
}

Error died(int status) {
  if (WIFSIGNALED(status)) {
    return make_error(ErrorCode::kFailed,
                      "it crashes when it is loaded (" + signal_name(WTERMSIG(status)) + ")");
  }
  return make_error(ErrorCode::kFailed, "it ends the process when it is loaded (exit code " +
                                            std::to_string(WEXITSTATUS(status)) + ")");
}

// The child's own program: nothing stands between it and the signal that ends it at the deadline.
// Of a process with threads a child may not even allocate memory.
[[noreturn]] void become_program(char* const* argv, int out) {
  const int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  ::dup2(nothing, STDIN_FILENO);
  ::dup2(nothing, STDERR_FILENO);
  ::dup2(out, STDOUT_FILENO);
  ::execvp(argv[0], argv);
  ::_exit(kExitFailed);
}

Result<std::string> run_in_child(const std::function<void(int out)>& child_main,
                                 std::chrono::milliseconds limit) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return errno_error(errno, "creating a pipe");
  os::Fd in(ends[0]);
  os::Fd out(ends[1]);
  const pid_t child = ::fork();
  if (child < 0) return errno_error(errno, "starting a process");
  if (child == 0) child_main(out.get());

  // Close our copy of the write end, or the pipe would never end.
  out.reset();
  std::string answer;
  const bool in_time = read_answer(in.get(), Clock::now() + limit, answer);
  // A child that hangs in a library does not react to anything else.
  if (!in_time) ::kill(child, SIGKILL);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!in_time) {
    return make_error(ErrorCode::kTimedOut, "it does not load within " +
                                                std::to_string(limit.count() / 1000) + " seconds");
  }
  if (answer.empty() || answer.back() != kComplete) return died(status);
  answer.pop_back();
  return answer;
}

}  // namespace

Result<std::string> run_isolated(const std::function<std::string()>& work,
                                 std::chrono::milliseconds limit) {
  return run_in_child([&](int out) { run_child(work, out); }, limit);
}

Result<std::string> run_isolated_program(const std::vector<std::string>& words,
                                         std::chrono::milliseconds limit) {
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  return run_in_child([&argv](int out) { become_program(argv.data(), out); }, limit);
}

}  // namespace hora::launcher
