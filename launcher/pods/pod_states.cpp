// SPDX-License-Identifier: Apache-2.0
// Fields that are missing, or of another type, count as empty: other versions of Kubernetes have
// other ones, and what it does not say is not known.
#include "launcher/pods/pod_states.h"

#include <algorithm>
#include <initializer_list>
#include <tuple>

#include <nlohmann/json.hpp>

#include "launcher/pods/pod_manifest.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

using PodJson = nlohmann::json;

constexpr std::size_t kReportedPods = 3;
constexpr std::size_t kLongestWords = 400;

// A null for what is not there: callers ask it for a type, and do without.
const PodJson& at(const PodJson& value, std::initializer_list<const char*> path) {
  static const PodJson none;
  const PodJson* found = &value;
  for (const char* name : path) {
    if (!found->is_object()) return none;
    const auto next = found->find(name);
    if (next == found->end()) return none;
    found = &*next;
  }
  return *found;
}

// A loop over a number would see it as its only element.
const PodJson& list_at(const PodJson& value, std::initializer_list<const char*> path) {
  static const PodJson none;
  const PodJson& found = at(value, path);
  return found.is_array() ? found : none;
}

std::string text_at(const PodJson& value, std::initializer_list<const char*> path) {
  const PodJson& found = at(value, path);
  return found.is_string() ? found.get<std::string>() : std::string();
}

int count_at(const PodJson& value, std::initializer_list<const char*> path) {
  const PodJson& found = at(value, path);
  return found.is_number_integer() ? found.get<int>() : 0;
}

// kubectl prints a warning of the server as text at times, although JSON was asked for.
Result<PodJson> parse(std::string_view text) {
  PodJson document = PodJson::parse(text, nullptr, /*allow_exceptions=*/false);
  if (document.is_object()) return document;
  return make_error(ErrorCode::kFailed,
                    "kubectl printed no JSON object: " + quote(text.substr(0, kLongestWords)));
}

// Messages of nodes and registries have several lines, and what a program has left as its last
// words is in them.
std::string reason_and_message(const std::string& reason, const std::string& message) {
  std::string words = reason;
  if (!message.empty()) words += (words.empty() ? "" : ": ") + message;
  return shortened(visible_line(words), kLongestWords);
}

std::string words_of(const PodJson& state) {
  return reason_and_message(text_at(state, {"reason"}), text_at(state, {"message"}));
}

// A container that has to wait gives the reason; the first steps of every start are not reported.
bool is_start(const std::string& reason) {
  return reason == "ContainerCreating" || reason == "PodInitializing";
}

// Kubernetes goes on trying, ever more slowly. A registry that was away for a moment comes back, a
// name that is spelled wrong does not, and the reasons are the same.
bool is_hopeless(std::string_view reason) {
  constexpr std::string_view kHopeless[] = {"ErrImagePull",      "ImagePullBackOff",
                                            "InvalidImageName",  "ErrImageNeverPull",
                                            "ImageInspectError", "CreateContainerError",
                                            "RunContainerError", "CreateContainerConfigError"};
  return std::find(std::begin(kHopeless), std::end(kHopeless), reason) != std::end(kHopeless);
}

// "OOMKilled (exit code 137)"; where Kubernetes gives no reason, how it ended alone.
std::string exit_words(const PodJson& terminated) {
  std::string words = words_of(terminated);
  const int signal = count_at(terminated, {"signal"});
  const std::string how = signal > 0
                              ? "signal " + std::to_string(signal)
                              : "exit code " + std::to_string(count_at(terminated, {"exitCode"}));
  return words.empty() ? how : words + " (" + how + ")";
}

// "True": Kubernetes takes the pod away, and says why (1.26 and later).
const PodJson* condition(const PodJson& pod, std::string_view type, std::string_view status) {
  for (const PodJson& each : list_at(pod, {"status", "conditions"})) {
    if (text_at(each, {"type"}) == type && text_at(each, {"status"}) == status) return &each;
  }
  return nullptr;
}

// A user's manifest may have other containers in addition to ours, or another name for ours.
const PodJson* worker_of(const PodJson& containers) {
  const PodJson* first = nullptr;
  for (const PodJson& each : containers) {
    if (text_at(each, {"name"}) == kWorkerContainer) return &each;
    if (first == nullptr) first = &each;
  }
  return first;
}

// The first trouble counts: containers start in their order, and the later ones wait for it. A
// container that has completed is none, such as one that prepares a volume.
void read_containers(const PodJson& all, PodState& pod, std::string& waits) {
  for (const PodJson& each : all) {
    const PodJson& waiting = at(each, {"state", "waiting"});
    const PodJson& terminated = at(each, {"state", "terminated"});
    const std::string reason = text_at(waiting, {"reason"});
    if (!reason.empty() && !is_start(reason) && waits.empty()) {
      waits = words_of(waiting);
      pod.hopeless = is_hopeless(reason);
    }
    const bool failed = terminated.is_object() && text_at(terminated, {"reason"}) != "Completed";
    if (failed && waits.empty()) waits = exit_words(terminated);
  }
}

// The phase of a pod is that of all its containers; what counts is the one that agents start in.
PodState read_pod(const PodJson& json) {
  PodState pod;
  pod.name = text_at(json, {"metadata", "name"});
  pod.node = text_at(json, {"spec", "nodeName"});
  if (const PodJson* worker = worker_of(list_at(json, {"spec", "containers"}))) {
    pod.container = text_at(*worker, {"name"});
  }
  const std::string phase = text_at(json, {"status", "phase"});
  bool started = phase == "Running";
  for (const PodJson& each : list_at(json, {"status", "containerStatuses"})) {
    const bool is_worker = text_at(each, {"name"}) == pod.container;
    if (is_worker && !at(each, {"state", "running"}).is_object()) started = false;
    if (is_worker && at(each, {"state", "terminated"}).is_object())
      pod.phase = PodState::Phase::kEnded;
  }
  if (phase == "Failed" || phase == "Succeeded") pod.phase = PodState::Phase::kEnded;
  if (started) pod.phase = PodState::Phase::kRunning;

  std::string of_containers;
  read_containers(list_at(json, {"status", "initContainerStatuses"}), pod, of_containers);
  read_containers(list_at(json, {"status", "containerStatuses"}), pod, of_containers);
  const PodJson* unscheduled = condition(json, "PodScheduled", "False");
  const PodJson* disrupted = condition(json, "DisruptionTarget", "True");
  pod.leaves_at = text_at(json, {"metadata", "deletionTimestamp"});
  pod.leaving = disrupted != nullptr || !pod.leaves_at.empty();
  // The pod's own reason (Evicted, NodeLost, Preempting) comes before what it has led to.
  pod.words = words_of(at(json, {"status"}));
  if (pod.words.empty() && disrupted != nullptr) pod.words = words_of(*disrupted);
  // The exit of a deleted pod's containers does not explain the deletion.
  if (pod.words.empty() && !pod.leaving) pod.words = of_containers;
  if (pod.words.empty() && pod.phase == PodState::Phase::kPending && unscheduled != nullptr) {
    pod.words = words_of(*unscheduled);
  }
  pod.words_are_ours = pod.words.empty();
  if (pod.words.empty() && pod.leaving) pod.words = "it is being deleted";
  if (pod.words.empty() && pod.phase == PodState::Phase::kEnded) pod.words = "it has ended";
  return pod;
}

// By any vendor's name: nvidia.com/gpu, amd.com/gpu. The API server prints numbers as strings.
int gpus_of(const PodJson& pod) {
  const PodJson* worker = worker_of(list_at(pod, {"containers"}));
  if (worker == nullptr) return 0;
  for (const auto& [name, value] : at(*worker, {"resources", "limits"}).items()) {
    if (!name.ends_with("/gpu")) continue;
    return value.is_string() ? parse_int<int>(value.get<std::string>()).value_or(0)
                             : count_at(at(*worker, {"resources", "limits"}), {name.c_str()});
  }
  return 0;
}

}  // namespace

// The API server's version of the manifest, not the manifest itself: it fills in defaults, and an
// admission controller may have changed it.
Result<PodJob> read_pod_job(std::string_view text) {
  auto json = parse(text);
  if (!json) return std::move(json).error();
  PodJob job;
  job.name = text_at(*json, {"metadata", "name"});
  job.workers = count_at(*json, {"spec", "parallelism"});
  job.gpus = gpus_of(at(*json, {"spec", "template", "spec"}));
  const std::string kind = text_at(*json, {"kind"});
  if (kind != "Job" || job.name.empty()) {
    return make_error(ErrorCode::kUsage, "expected one Job of batch/v1, found " +
                                             (kind.empty() ? "something else" : "a " + kind));
  }
  if (job.workers < 1) {
    return make_error(ErrorCode::kUsage, "Job " + job.name + " has no spec.parallelism");
  }
  if (const PodJson* failed = condition(*json, "Failed", "True")) job.words = words_of(*failed);
  return job;
}

// By name, so that the same pods give the same hosts in the same order.
Result<std::vector<PodState>> read_pod_states(std::string_view text) {
  auto json = parse(text);
  if (!json) return std::move(json).error();
  std::vector<PodState> pods;
  for (const PodJson& each : list_at(*json, {"items"})) pods.push_back(read_pod(each));
  std::sort(pods.begin(), pods.end(),
            [](const PodState& a, const PodState& b) { return a.name < b.name; });
  return pods;
}

// Kubernetes writes "Normal" for an eviction by a taint, too.
Result<std::string> read_last_event(std::string_view text) {
  auto json = parse(text);
  if (!json) return std::move(json).error();
  std::string latest, words;
  for (const PodJson& each : list_at(*json, {"items"})) {
    const std::string reason = text_at(each, {"reason"});
    const bool is_relevant = text_at(each, {"type"}) == "Warning" ||
                             reason == "TaintManagerEviction" || reason == "Preempted" ||
                             reason == "Killing";
    std::string when = text_at(each, {"lastTimestamp"});
    if (when.empty()) when = text_at(each, {"metadata", "creationTimestamp"});
    if (!is_relevant || when < latest) continue;
    latest = std::move(when);
    words = words_of(each);
  }
  return words;
}

// One that has ended will not run again, and one that is leaving will end: both decide for all.
PodsVerdict judge_pods(const std::vector<PodState>& pods, int workers) {
  const auto has = [&pods](auto predicate) {
    return std::any_of(pods.begin(), pods.end(), predicate);
  };
  if (has([](const PodState& pod) {
        return pod.phase == PodState::Phase::kEnded || pod.leaving;
      })) {
    return PodsVerdict::kEnded;
  }
  if (has([](const PodState& pod) { return pod.hopeless; })) return PodsVerdict::kHopeless;
  const bool all_run =
      !has([](const PodState& pod) { return pod.phase != PodState::Phase::kRunning; });
  const bool complete = static_cast<int>(pods.size()) == workers;
  return complete && all_run ? PodsVerdict::kReady : PodsVerdict::kStarting;
}

// A pod that is being deleted still runs, for its grace period, and its containers may have ended
// by then for no other reason: whose deletion began first has ended the job. Pods of one Job have
// the same grace.
std::vector<PodState> lost_pods(const std::vector<PodState>& pods,
                                const std::vector<std::string>& names) {
  std::vector<PodState> lost;
  for (const std::string& name : names) {
    const auto found = std::find_if(pods.begin(), pods.end(),
                                    [&](const PodState& pod) { return pod.name == name; });
    if (found == pods.end()) {
      PodState& gone = lost.emplace_back();
      gone.name = name;
      gone.phase = PodState::Phase::kEnded;
      gone.words = "it was deleted";
      gone.words_are_ours = true;
    } else if ((found->phase != PodState::Phase::kRunning || found->leaving) &&
               found->words.find(kNoLauncher) == std::string::npos) {
      PodState& pod = lost.emplace_back(*found);
      if (pod.words.empty()) pod.words = "it does not run";
    }
  }
  std::stable_sort(lost.begin(), lost.end(), [](const PodState& a, const PodState& b) {
    return std::tie(a.words_are_ours, a.leaves_at) < std::tie(b.words_are_ours, b.leaves_at);
  });
  return lost;
}

// The count comes first; a message of a thousand pods that names each would say nothing.
std::string pods_text(const std::vector<PodState>& pods, int workers, const std::string& of_job) {
  const auto running = std::count_if(pods.begin(), pods.end(), [](const PodState& pod) {
    return pod.phase == PodState::Phase::kRunning && !pod.leaving;
  });
  std::string text = std::to_string(running) + " of " + counted(workers, "pod") +
                     (workers == 1 ? " runs" : " run");
  std::size_t reported = 0, more = 0;
  for (const PodState& pod : pods) {
    if (pod.words.empty()) continue;
    if (++reported > kReportedPods) {
      ++more;
      continue;
    }
    text += "; " + pod.name + (pod.node.empty() ? "" : " on " + pod.node) + ": " + pod.words;
  }
  if (more > 0) text += "; and so on for " + std::to_string(more) + " more";
  if (!of_job.empty()) text += "; " + of_job;
  return visible_line(text);
}

}  // namespace hora::launcher
