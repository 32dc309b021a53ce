// SPDX-License-Identifier: Apache-2.0
// What Kubernetes says of a Job and its pods, read from `kubectl get -o json`.  [pure]
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/result.h"

namespace hora::launcher {

struct PodState {
  enum class Phase { kPending, kRunning, kEnded };
  std::string name;
  std::string node;       // empty: it has none yet
  std::string container;  // that agents start in
  Phase phase = Phase::kPending;
  bool leaving = false;   // it is being deleted, or its node is given up
  std::string leaves_at;  // RFC 3339: when its grace ends; empty: it is not being deleted
  std::string words;      // why it does not run, or will not for long; empty: nothing is wrong
  bool words_are_ours = false;  // Kubernetes has given no reason
  bool hopeless = false;        // Kubernetes tries again, but that seldom helps: no such image
};

struct PodJob {
  std::string name;
  int workers = 0;
  int gpus = 0;       // of each pod
  std::string words;  // why it has failed; empty: it has not
};

// What `kubectl create` or `kubectl get job` has printed. Errors (kUsage): it is no Job, or one
// without a fixed number of pods.
Result<PodJob> read_pod_job(std::string_view json);
// What `kubectl get pods` has printed, by name.
Result<std::vector<PodState>> read_pod_states(std::string_view json);
// What `kubectl get events` has printed: the words of the latest warning ("FailedCreate: pods ...
// is forbidden: exceeded quota"), or of how a pod came to its end. Empty: there are none.
Result<std::string> read_last_event(std::string_view json);

enum class PodsVerdict {
  kStarting,
  kHopeless,  // the same, but it is not expected that they will
  kReady,     // all run
  kEnded,     // one of them runs no more
};
PodsVerdict judge_pods(const std::vector<PodState>& pods, int workers);

// Among the pods in `names` that have stopped, the one that ended the job first: the others may be
// deleted because of it. None that ended because it was idle.
std::vector<PodState> lost_pods(const std::vector<PodState>& pods,
                                const std::vector<std::string>& names);

// "3 of 4 pods run; hora-x7k2p-abcde: Unschedulable: 0/3 nodes are available" - the words of at
// most three pods. `of_job`: why pods are missing; may be empty.
std::string pods_text(const std::vector<PodState>& pods, int workers, const std::string& of_job);

}  // namespace hora::launcher
