// SPDX-License-Identifier: Apache-2.0
#include "launcher/pods/pod_starter.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "launcher/transports/remote_end.h"
#include "launcher/transports/rsh_argv.h"
#include "rendezvous/base/text.h"
#include "rendezvous/os/random.h"
#include "rendezvous/os/read_file.h"

namespace hora::launcher {

namespace {

constexpr std::size_t kMostWords = 4096;

// Parameters: a nonce, what the pod is called, the helper's processor and size. The first line of
// the input is what the helper gets, the rest is the helper. It lies where programs may run for as
// long as it needs to be started; no word of the line is on a command line, for printf is the
// shell's own. The shell stays: it has the stream on which the helper tells why it cannot dial.
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

// The stream has served. What the helper runs is none of its business.
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

// The helper's own words tell more than those of kubectl.
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
