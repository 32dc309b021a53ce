// SPDX-License-Identifier: Apache-2.0
#include "launcher/pods/kubectl.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <utility>
#include <variant>

#include "launcher/process/piped_child.h"
#include "launcher/text/units.h"
#include "launcher/text/user_input.h"
#include "launcher/transports/remote_command.h"
#include "rendezvous/base/text.h"
#include "rendezvous/os/files.h"
#include "rendezvous/os/random.h"
#include "rendezvous/os/time_until.h"

namespace hora::launcher {

namespace {

// Ten thousand pods; kubectl does not print more.
constexpr std::size_t kLongestAnswer = std::size_t{256} << 20;
constexpr std::size_t kLongestComplaint = 4096;
// kubectl says itself that the server did not answer in time.
constexpr Milliseconds kEndsAfterRequest{2'000};
// Linux < 5.3 cannot report the end of a process through a descriptor, so look for it.
constexpr int kLookAgainMs = 20;

// Excess output is read and dropped: a program that waits for room in its pipe would not end.
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
Result<std::string> Kubectl::run(const std::vector<std::string>& arguments, Milliseconds timeout,
                                 int interrupt, const std::string& input) const {
  std::vector<std::string> argv = command_;
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  argv.push_back(
      "--request-timeout=" + std::to_string(std::max<long long>(timeout.count() / 1000, 1)) + "s");
  auto child = PipedChild::start(argv);
  if (!child) return std::move(child).error();
  std::string answer, complaint;
  std::string_view left = input;
  const auto deadline = Clock::now() + timeout + kEndsAfterRequest;
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
                                                  format_duration(timeout + kEndsAfterRequest));
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

namespace {

constexpr std::size_t kMostWords = 4096;

// Parameters: a nonce, the name of the pod, the helper's processor and size. The first line of the
// input is for the helper, the rest is the helper. It lies where programs may run until it is
// started; no secret of the line is on a command line, for printf is the shell's own. The shell
// stays: it has the stream on which the helper reports why it cannot connect.
constexpr std::string_view kScript =
    "command -v mkdir >/dev/null 2>&1 || PATH=${PATH:+$PATH:}/usr/bin:/bin; "
    "_w() { echo \"HORA-$1 failed $2 $5\"; exit 1; }; "
    "[ \"$(uname -m)\" = \"$3\" ] || _w \"$@\" \"its processor is not this machine\"; "
    "read -r _l || exit 1; umask 077; "
    "for _d in \"${TMPDIR:-/tmp}\" /dev/shm \"${HOME:-/}\" .; do _f=$_d/.hora-$1; "
    "{ echo exit 0 >\"$_f\" && chmod 700 \"$_f\" && \"$_f\"; } 2>/dev/null && break; "
    "rm -f \"$_f\" 2>/dev/null; _f=; done; "
    "[ -n \"$_f\" ] || _w \"$@\" \"no directory can hold the helper\"; "
    "cat >\"$_f\"; [ $(wc -c <\"$_f\") -eq $4 ] || { rm -f \"$_f\"; "
    "_w \"$@\" \"the helper has not arrived\"; }; "
    "printf \"%s\\n\" \"$_l\" | \"$_f\" \"$1\" \"$2\" \"\" \"\"; rm -f \"$_f\"";

}  // namespace

PodStarter::PodStarter(os::EventLoop& loop, Request request, std::string url, Handlers handlers)
    : loop_(loop),
      request_(std::move(request)),
      url_(std::move(url)),
      nonce_(os::random_token().substr(0, 16)),
      handlers_(std::move(handlers)) {}

Status PodStarter::begin() {
  auto helper = os::read_file(request_.helper_path);
  if (!helper) return std::move(helper).error();
  input_ = std::make_shared<const std::string>(url_ + "\n" + *helper);
  start_some();
  return Ok{};
}

// Each is a kubectl, with the memory that a program in Go takes.
void PodStarter::start_some() {
  while (next_ < request_.pods.size() &&
         execs_.size() < static_cast<std::size_t>(request_.fan_out)) {
    const std::string& pod = request_.pods[next_++];
    if (const auto started = start(pod); !started) {
      execs_.erase(pod);
      handlers_.on_failure({pod, started.error().message});
    }
  }
  if (execs_.empty() && handlers_.on_end) {
    std::exchange(handlers_.on_end, nullptr)("kubectl has done its work");
  }
}

Status PodStarter::start(const std::string& pod) {
  const std::size_t size = input_->size() - url_.size() - 1;
  std::string line = "exec sh -c '" + std::string(kScript) + "' hora " + nonce_ + " " + pod + " " +
                     request_.machine + " " + std::to_string(size);
  auto argv = rsh_argv(request_.exec_command, Host{pod, "", {}}, line);
  if (!argv) return std::move(argv).error();
  Exec& exec = execs_[pod];
  const auto keep = [](std::string& text) {
    return [&text](std::string_view said) {
      text.append(said.substr(0, kMostWords - std::min(kMostWords, text.size())));
    };
  };
  exec.child = std::make_unique<WatchedChild>(
      loop_, WatchedChild::Handlers{keep(exec.output), keep(exec.errors),
                                    [this, pod](int status) { on_exec_end(pod, status); }});
  HORA_TRY(exec.child->start(*argv));
  return exec.child->feed(input_);
}

// The stream has served. The helper's program does not need it.
void PodStarter::on_joined(const std::string& pod) { finish(pod); }

// Before the helper has dialled, or it would have been finished by now.
void PodStarter::on_exec_end(const std::string& pod, int status) {
  handlers_.on_failure({pod, why(pod, status)});
  finish(pod);
}

// From inside of the child's own handler at times, which may destroy it.
void PodStarter::finish(const std::string& pod) {
  if (execs_.erase(pod) != 0) start_some();
}

// The helper's own message says more than that of kubectl.
std::string PodStarter::why(const std::string& pod, int status) const {
  const Exec& exec = execs_.at(pod);
  for (const std::string_view line : split(exec.output, '\n')) {
    const auto said = parse_step_line(nonce_, line);
    const auto* failure = said ? std::get_if<StepFailure>(&*said) : nullptr;
    if (failure != nullptr) return failure->why;
  }
  const std::string words(trim(exec.errors));
  return "kubectl exec ended with status " + std::to_string(status) +
         (words.empty() ? "" : ": " + last_words(words));
}

void PodStarter::ask_to_end() {
  next_ = request_.pods.size();
  execs_.clear();
  start_some();
}

}  // namespace hora::launcher
