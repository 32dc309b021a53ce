// SPDX-License-Identifier: Apache-2.0
// What kubectl prints of a Job, its pods and their events: any bytes give values and words that are
// one visible line of bounded length, or a message. Pods that run are not lost; those that are gone
// are.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/pods/pod_states.h"
#include "rendezvous/base/text.h"

using namespace hora::launcher;

namespace {

void check_words(const std::string& words) {
  if (words != hora::visible_line(words) || words.size() > 500) std::abort();
}

void check_pods(const std::vector<PodState>& pods) {
  std::vector<std::string> names{"gone"};
  for (const PodState& pod : pods) {
    check_words(pod.words);
    names.push_back(pod.name);
  }
  const bool unknown = std::none_of(pods.begin(), pods.end(),
                                    [](const PodState& pod) { return pod.name == "gone"; });
  const auto lost = lost_pods(pods, names);
  if (lost.size() > names.size() || (unknown && lost.empty())) std::abort();
  const auto workers = static_cast<int>(pods.size());
  for (const PodState& pod : lost) {
    if (pod.words.empty() || (pod.phase == PodState::Phase::kRunning && !pod.leaving)) {
      // Two pods of one name: the first one counts.
      if (std::count(names.begin(), names.end(), pod.name) < 2) std::abort();
    }
  }
  const std::string text = pods_text(lost, workers, "");
  if (text != hora::visible_line(text)) std::abort();
  if (judge_pods(pods, workers) == PodsVerdict::kReady) {
    for (const PodState& pod : pods) {
      if (pod.phase != PodState::Phase::kRunning || pod.leaving) std::abort();
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto pods = read_pod_states(text)) {
    check_pods(*pods);
  } else if (pods.error().message.empty()) {
    std::abort();
  }
  if (const auto job = read_pod_job(text)) {
    if (job->name.empty() || job->workers < 1 || job->gpus < 0) std::abort();
    check_words(job->words);
  } else if (job.error().message.empty()) {
    std::abort();
  }
  if (const auto words = read_last_event(text)) check_words(*words);
  return 0;
}
