// SPDX-License-Identifier: Apache-2.0
#include "launcher/pods/kubectl.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>

#include "launcher/process/piped_child.h"
#include "launcher/text/duration.h"
#include "launcher/text/shell_words.h"
#include "rendezvous/base/text.h"
#include "rendezvous/os/time_until.h"

namespace hora::launcher {

namespace {

// Ten thousand pods; more is no answer of kubectl.
constexpr std::size_t kLongestAnswer = std::size_t{256} << 20;
constexpr std::size_t kLongestComplaint = 4096;
// kubectl says itself that the server did not answer in time.
constexpr Milliseconds kEndsAfterRequest{2'000};
// Linux < 5.3 cannot report the end of a process through a descriptor, so look for it.
constexpr int kLookAgainMs = 20;

// What is too much is read and dropped: a program that waits for room in its pipe would not end.
void drain(os::Fd& pipe, std::string& text, std::size_t most) {
  char chunk[16 * 1024];
  for (int turn = 0; turn < 64 && pipe.valid(); ++turn) {
    const ssize_t got = ::read(pipe.get(), chunk, sizeof chunk);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) return pipe.reset();
    text.append(chunk, std::min(static_cast<std::size_t>(got), most - text.size()));
  }
}

// What kubectl reads is closed when all is written, or when it reads no more.
void feed(os::Fd& pipe, std::string_view& left) {
  while (pipe.valid() && !left.empty()) {
    const ssize_t wrote = ::write(pipe.get(), left.data(), left.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0 && errno == EAGAIN) return;
    if (wrote < 0) break;
    left.remove_prefix(static_cast<std::size_t>(wrote));
  }
  pipe.reset();
}

// The API server's refusals are final for this user; everything else may be a moment's trouble.
Error failure(const std::string& complaint, int exit_code) {
  std::string said(trim(complaint));
  if (said.empty()) said = "exit code " + std::to_string(exit_code);
  // kubectl's own advice is about the validation of what it could not send.
  for (const char* sign :
       {"connection refused", "Unable to connect", "was refused", "no such host"}) {
    if (said.find(sign) == std::string::npos) continue;
    said +=
        "\n  kubectl reaches no cluster: check 'kubectl cluster-info', or choose one with "
        "--kubectl 'kubectl --context NAME'";
    break;
  }
  const bool denied = said.find("(Forbidden)") != std::string::npos ||
                      said.find("(Unauthorized)") != std::string::npos;
  return make_error(denied ? ErrorCode::kDenied : ErrorCode::kFailed, std::move(said));
}

}  // namespace

Kubectl::Kubectl(const PodsSpec& spec) : command_(spec.kubectl) {
  if (!spec.name_space.empty()) command_.push_back("--namespace=" + spec.name_space);
}

std::string Kubectl::shown() const { return quote_shell_words(command_); }

std::vector<std::string> Kubectl::exec_command(const std::string& container) const {
  std::vector<std::string> words = command_;
  for (const char* word : {"exec", "-i", "{host}", "-c"}) words.emplace_back(word);
  words.push_back(container);
  for (const char* word : {"--", "sh", "-c", "{command}"}) words.emplace_back(word);
  return words;
}

// kubectl has a limit for its request, and this function one for kubectl: a credential plug-in may
// wait for something that never comes.
Result<std::string> Kubectl::run(const std::vector<std::string>& arguments, Milliseconds patience,
                                 int interrupt, const std::string& input) const {
  std::vector<std::string> argv = command_;
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  argv.push_back(
      "--request-timeout=" + std::to_string(std::max<long long>(patience.count() / 1000, 1)) + "s");
  auto child = PipedChild::start(argv);
  if (!child) return std::move(child).error();
  std::string answer, complaint;
  std::string_view left = input;
  const auto deadline = Clock::now() + patience + kEndsAfterRequest;
  while (true) {
    feed(child->stdin_fd, left);
    // The end first: all that kubectl wrote is in the pipes then.
    const auto ended = child->ended();
    drain(child->stdout_fd, answer, kLongestAnswer);
    drain(child->stderr_fd, complaint, kLongestComplaint);
    if (ended && (*ended != 0 || !child->stdout_fd.valid())) {
      if (*ended != 0) return failure(complaint, *ended);
      return answer;
    }
    int pause = os::milliseconds_until(deadline);
    if (pause == 0) {
      return make_error(ErrorCode::kTimedOut, quote_shell_words(argv) + " did not end within " +
                                                  format_duration(patience + kEndsAfterRequest));
    }
    if (child->ended_fd() < 0) pause = std::min(pause, kLookAgainMs);
    // poll() skips negative descriptors.
    pollfd watched[] = {{child->stdout_fd.get(), POLLIN, 0},
                        {child->stderr_fd.get(), POLLIN, 0},
                        {child->stdin_fd.get(), POLLOUT, 0},
                        {ended ? -1 : child->ended_fd(), POLLIN, 0},
                        {interrupt, POLLIN, 0}};
    (void)::poll(watched, std::size(watched), pause);
    if (watched[4].revents != 0) {
      return make_error(ErrorCode::kInterrupted, "interrupted while kubectl ran");
    }
  }
}

}  // namespace hora::launcher
