// SPDX-License-Identifier: Apache-2.0
#include "launcher/process/captured_run.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <utility>

#include "launcher/process/piped_child.h"
#include "launcher/text/units.h"
#include "launcher/text/user_input.h"
#include "rendezvous/os/time_until.h"

namespace hora::launcher {

namespace {

constexpr std::size_t kLongestOutput = 1u << 20;
// Linux < 5.3 cannot report the end of a process through a descriptor, so look for it.
constexpr int kLookAgainMs = 20;

// Takes the available bytes, and closes the pipe at its end. Excess output is read and dropped: a
// program that waits for room in its pipe would not end. One call reads no more than a pipe holds,
// so that a program that prints without end cannot keep the caller from its deadline.
void drain(os::Fd& pipe, std::string& text) {
  char chunk[4096];
  for (std::size_t turn = 0; turn < kLongestOutput / sizeof chunk && pipe.valid(); ++turn) {
    const ssize_t got = ::read(pipe.get(), chunk, sizeof chunk);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) return pipe.reset();
    const std::size_t room = kLongestOutput - text.size();
    text.append(chunk, std::min(static_cast<std::size_t>(got), room));
  }
}

// Until there is something to read, an end to see, or no time left.
void wait_for(const PipedChild& child, int timeout_ms) {
  pollfd watched[] = {{child.stdout_fd.get(), POLLIN, 0},
                      {child.stderr_fd.get(), POLLIN, 0},
                      {child.ended_fd(), POLLIN, 0}};
  if (child.ended_fd() < 0) timeout_ms = std::min(timeout_ms, kLookAgainMs);
  // poll() skips negative descriptors. When it fails, the caller looks and asks again.
  (void)::poll(watched, std::size(watched), timeout_ms);
}

}  // namespace

Result<CapturedRun> run_captured(const std::vector<std::string>& argv, Milliseconds timeout) {
  auto child = PipedChild::start(argv);
  if (!child) return std::move(child).error();
  child->stdin_fd.reset();
  CapturedRun run;
  const auto deadline = Clock::now() + timeout;
  while (true) {
    // Look for the end first: all that the program wrote is in the pipes then. Its zombie keeps
    // the process group's number until the destructor has killed what is left of the group.
    const auto ended = child->ended();
    drain(child->stdout_fd, run.output);
    drain(child->stderr_fd, run.errors);
    if (ended) {
      run.exit_code = *ended;
      run.output += run.errors;
      return run;
    }
    const int left_ms = os::milliseconds_until(deadline);
    if (left_ms == 0) {
      return make_error(ErrorCode::kTimedOut, quote_shell_words(argv) + " did not end within " +
                                                  format_duration(timeout));
    }
    wait_for(*child, left_ms);
  }
}

}  // namespace hora::launcher
