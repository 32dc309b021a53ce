// SPDX-License-Identifier: Apache-2.0
#include "launcher/pods/pods.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "launcher/dial/step_transport.h"
#include "launcher/failures/failure_code.h"
#include "launcher/pods/kubectl.h"
#include "launcher/pods/pod_manifest.h"
#include "launcher/process/signals.h"
#include "launcher/protocol/exit_code.h"
#include "launcher/text/units.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

constexpr Milliseconds kRequest{30'000};  // for one call of kubectl
// Between two looks at the pods: soon, as long as they may come at any moment.
constexpr Milliseconds kPause{500};
constexpr Milliseconds kLaterPause{3'000};
constexpr Milliseconds kSoon{15'000};
// When to ask about pods that are missing or wait: the first moments are not reported.
constexpr Milliseconds kAskAfter{3'000};
// How long an image that cannot be pulled, or a container that cannot be made, is waited for.
constexpr Milliseconds kHopelessFor{30'000};
// How long Kubernetes takes to write down why a container is gone.
constexpr Milliseconds kLastWords{5'000};

// They stay pending while kubectl runs, so none gets lost between two looks, and the descriptor
// wakes the waiting thread.
Result<os::Fd> hold_signals() {
  const sigset_t held = ending_signals();
  ::pthread_sigmask(SIG_BLOCK, &held, nullptr);
  os::Fd fd(::signalfd(-1, &held, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd.valid()) return errno_error(errno, "watching for signals");
  return fd;
}

// As even as it can be: pods cost alike.
std::vector<Host> hosts_of(const std::vector<PodState>& pods, int ranks) {
  std::vector<Host> hosts;
  const int count = static_cast<int>(pods.size());
  for (int i = 0; i < count; ++i) {
    Host& host = hosts.emplace_back();
    host.name = pods[static_cast<std::size_t>(i)].name;
    host.slots = ranks / count + (i < ranks % count ? 1 : 0);
  }
  return hosts;
}

// In the same words as an engine's allocation, which it replaces.
std::string summary(const std::string& job, const std::vector<Host>& pods, int ranks, bool dial) {
  return "Kubernetes job " + job + ": " + counted(ranks, "slot") + " in " +
         counted(pods.size(), "pod") + "; agents start by kubectl exec" +
         (dial ? ", and dial back" : "");
}

// For people who grep for classes, as all messages that end a job have one.
Error with_class(Error error) {
  if (error.code != ErrorCode::kUsage) {
    // After kubectl's message, before the advice.
    const std::size_t advice = std::min(error.message.find("\n  "), error.message.size());
    error.message.insert(advice, " [" + std::string(failure::kKubernetes) + "]");
  }
  return error;
}

}  // namespace

void Pods::say(const std::string& text) const {
  if (!json_) std::fprintf(stderr, "horarun: %s\n", text.c_str());
}

// The call that makes the Job is not broken off: whether there is one would not be known, nor its
// name.
Result<std::unique_ptr<Pods>> Pods::make(const JobSpec& spec) {
  auto signals = hold_signals();
  if (!signals) return std::move(signals).error();
  std::unique_ptr<Pods> pods(new Pods(spec, std::move(*signals)));
  const std::string& file = spec.pods->manifest_file;
  const std::string manifest = file.empty() ? pod_manifest(spec) : std::string();
  auto made = pods->kubectl_.run({"create", "-f", file.empty() ? "-" : file, "-o", "json"},
                                 kRequest, -1, manifest);
  if (!made) {
    return with_class(std::move(made).error().with_context(pods->kubectl_.shown() + " create"));
  }
  auto job = read_pod_job(*made);
  if (!job) return std::move(job).error().with_context(file.empty() ? "kubectl create" : file);
  pods->job_ = std::move(*job);
  return pods;
}

// However the job ended. The pods' own process ends at SIGTERM as soon as the pod is idle, so there
// is nothing to wait for.
Pods::~Pods() {
  if (job_.name.empty()) return;
  const auto gone =
      kubectl_.run({"delete", "job", job_.name, "--ignore-not-found", "--wait=false"}, kRequest);
  if (gone) return;
  std::fprintf(stderr,
               "horarun: warning: job %s could not be deleted: %s\n"
               "  It ends by itself within %s. Delete it: %s delete job %s\n",
               job_.name.c_str(), gone.error().message.c_str(),
               format_duration(kIdleLimit + kFinishedJobStays).c_str(), kubectl_.shown().c_str(),
               job_.name.c_str());
}

std::string Pods::last_event_of(const std::string& kind, const std::string& name) const {
  const auto events = kubectl_.run({"get", "events", "-o", "json", "--field-selector",
                                    "involvedObject.kind=" + kind + ",involvedObject.name=" + name},
                                   kRequest, signals_.get());
  // Without the right to read events, the explanation is shorter.
  if (!events) return {};
  const auto words = read_last_event(*events);
  return words ? *words : std::string();
}

// Kubernetes labels the pods of a Job with its name, in all versions.
Result<Pods::Look> Pods::look(bool ask_for_events) const {
  auto text = kubectl_.run({"get", "pods", "-l", "job-name=" + job_.name, "-o", "json"}, kRequest,
                           signals_.get());
  if (!text) return std::move(text).error();
  auto pods = read_pod_states(*text);
  if (!pods) return std::move(pods).error();
  Look look;
  look.pods = std::move(*pods);
  if (!ask_for_events) return look;
  if (static_cast<int>(look.pods.size()) < job_.workers) {
    auto job = kubectl_.run({"get", "job", job_.name, "-o", "json", "--ignore-not-found"}, kRequest,
                            signals_.get());
    if (!job) return std::move(job).error();
    const auto read = trim(*job).empty() ? Result<PodJob>(PodJob{}) : read_pod_job(*job);
    if (!read) return read.error();
    look.over = read->name.empty() || !read->words.empty();
    look.of_job = read->name.empty() ? "job " + job_.name + " was deleted" : read->words;
    if (look.of_job.empty()) look.of_job = last_event_of("Job", job_.name);
    return look;
  }
  // One that has been given a node and says nothing: a volume, a secret or a network is missing.
  const auto silent = std::find_if(look.pods.begin(), look.pods.end(), [](const PodState& pod) {
    return pod.phase == PodState::Phase::kPending && pod.words.empty();
  });
  if (silent != look.pods.end()) silent->words = last_event_of("Pod", silent->name);
  return look;
}

// The first one decides; a second one that comes now waits for the supervisor or for the end.
std::optional<int> Pods::taken_signal() const {
  signalfd_siginfo info{};
  if (::read(signals_.get(), &info, sizeof info) != sizeof info) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

std::optional<int> Pods::give_up(const std::string& why, std::string_view failure_class,
                                 int exit_code) const {
  std::fprintf(stderr, "horarun: %s [%s]\n", why.c_str(), std::string(failure_class).c_str());
  return exit_code;
}

// The time limit for pods that are not awaited would end pods that work.
Status Pods::lift_time_limit() const {
  const auto patched = kubectl_.run({"patch", "job", job_.name, "--type=merge", "-p",
                                     R"({"spec":{"activeDeadlineSeconds":null}})"},
                                    kRequest, signals_.get());
  return patched ? Status(Ok{}) : Status(patched.error());
}

// Answers nothing when all pods run; `pods` are they.
Result<std::optional<int>> Pods::wait_for_pods(std::vector<PodState>& pods) {
  const auto begun = Clock::now();
  Deadline hopeless_until = Deadline::max();
  std::string reported, standing;
  while (true) {
    const bool asks = Clock::now() - begun >= kAskAfter;
    const auto seen = look(asks);
    if (const auto signal = taken_signal()) {
      return give_up("ended by signal " + std::to_string(*signal) + " while it waited for pods" +
                         (standing.empty() ? "" : ": " + standing),
                     failure::kKubernetes, exit_code_of_signal(*signal));
    }
    if (!seen && seen.error().code == ErrorCode::kDenied) return with_class(seen.error());
    // The API server may be away for a moment.
    standing = seen ? pods_text(seen->pods, job_.workers, seen->of_job) : seen.error().message;
    const PodsVerdict verdict =
        seen ? judge_pods(seen->pods, job_.workers) : PodsVerdict::kStarting;
    if (verdict == PodsVerdict::kReady) {
      pods = seen->pods;
      return std::optional<int>();
    }
    if (verdict == PodsVerdict::kEnded || (seen && seen->over)) {
      return give_up("the pods of the job do not run: " + standing, failure::kKubernetes,
                     kExitLauncher);
    }
    if (verdict != PodsVerdict::kHopeless) {
      hopeless_until = Deadline::max();
    } else if (hopeless_until == Deadline::max()) {
      hopeless_until = Clock::now() + kHopelessFor;
    }
    if (Clock::now() >= hopeless_until) {
      return give_up("the pods of the job cannot be started: " + standing, failure::kKubernetes,
                     kExitLauncher);
    }
    if (Clock::now() - begun >= timeout_) {
      return give_up("waited " + format_duration(timeout_) + " for pods: " + standing,
                     failure::kStartTimeout, kExitTimeout);
    }
    if (asks && standing != reported) say("waiting for pods: " + (reported = standing));
    pollfd signal{signals_.get(), POLLIN, 0};
    const Milliseconds pause = Clock::now() - begun < kSoon ? kPause : kLaterPause;
    (void)::poll(&signal, 1, static_cast<int>(pause.count()));
  }
}

// The hosts are named by their pods: that is what kubectl takes, and what messages should show.
Result<std::optional<int>> Pods::wait(JobSpec& spec) {
  const int ranks = spec.num_proc > 0 ? spec.num_proc : job_.workers * std::max(job_.gpus, 1);
  if (ranks < job_.workers) {
    return make_error(ErrorCode::kUsage, "-np " + std::to_string(ranks) + " leaves some of the " +
                                             std::to_string(job_.workers) + " pods without a rank");
  }
  say("job " + job_.name + " of Kubernetes was created; waiting for " +
      counted(job_.workers, "pod"));
  std::vector<PodState> pods;
  auto early = wait_for_pods(pods);
  if (!early || early->has_value()) return early;
  if (const Status lifted = lift_time_limit(); !lifted) {
    return with_class(lifted.error().with_context("lifting the time limit of job " + job_.name));
  }
  for (const PodState& pod : pods) names_.push_back(pod.name);
  spec.hosts = hosts_of(pods, ranks);
  spec.num_proc = ranks;
  spec.rsh_command = kubectl_.exec_command(pods.front().container);
  spec.engine =
      JobEngine{"k8s", job_.name, summary(job_.name, spec.hosts, ranks, spec.pods->dial), {}};
  return early;
}

std::unique_ptr<Transport> Pods::transport(const JobSpec& spec, const Helper& helper,
                                           StageObserver observer) const {
  DialWay way{"kubectl exec, to dial back",
              "not all pods dial this machine",
              "the others are reached by kubectl exec",
              {},
              {}};
  if (!helper.path.empty()) {
    PodStarter::Request request;
    request.exec_command = spec.rsh_command;
    for (const Host& host : spec.hosts) request.pods.push_back(host.name);
    request.helper_path = helper.path;
    request.machine = helper.machine;
    request.fan_out = spec.fan_out;
    way.make_starter = [request](os::EventLoop& loop, std::string url, Starter::Handlers handlers) {
      return std::make_unique<PodStarter>(loop, request, std::move(url), std::move(handlers));
    };
  }
  return make_dial_transport(spec, std::move(way), spec.hosts, nullptr, std::move(observer));
}

// The ranks know that a process was killed or a connection broke, Kubernetes why.
std::optional<Failure> Pods::why_ended(bool wait) const {
  const auto deadline = Clock::now() + (wait ? kLastWords : Milliseconds(0));
  while (true) {
    const auto seen = look(false);
    auto lost = seen ? lost_pods(seen->pods, names_) : std::vector<PodState>();
    for (PodState& pod : lost) {
      if (!pod.words_are_ours) continue;
      const std::string event = last_event_of("Pod", pod.name);
      if (!event.empty()) pod.words += ": " + event;
    }
    if (!lost.empty()) {
      return Failure{std::string(failure::kEngine),
                     "Kubernetes has ended the job: " + pods_text(lost, job_.workers, ""), ""};
    }
    if (Clock::now() >= deadline) return std::nullopt;
    pollfd signal{signals_.get(), POLLIN, 0};
    if (::poll(&signal, 1, static_cast<int>(kPause.count())) > 0) return std::nullopt;
  }
}

}  // namespace hora::launcher
