// SPDX-License-Identifier: Apache-2.0
// `horarun k8s`: creates a Job of Kubernetes, waits until its pods run, and deletes it at the end.
// Pods of a killed horarun end by themselves (pod_manifest.h).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/plan/job_spec.h"
#include "launcher/pods/kubectl.h"
#include "launcher/pods/pod_states.h"
#include "launcher/protocol/messages.h"
#include "launcher/transports/transport.h"
#include "rendezvous/base/result.h"
#include "rendezvous/os/fd.h"

namespace hora::launcher {

class Pods {
 public:
  // Makes the Job. `spec.pods` is set. From here on ending_signals() wait to be taken, by
  // wait() or by the supervisor. Errors: kubectl's, and a manifest that cannot be read.
  static Result<std::unique_ptr<Pods>> make(const JobSpec& spec);
  // Deletes it, and with it the pods; says so if that fails.
  ~Pods();
  Pods(const Pods&) = delete;
  Pods& operator=(const Pods&) = delete;

  // Blocks until all pods run. Sets the hosts of `spec` and how they are reached then, and answers
  // nothing; else the exit code of a job that has not begun, which it has explained.
  Result<std::optional<int>> wait(JobSpec& spec);

  // Reaches the pods of an attempt by connections from them, and those from which none comes by
  // kubectl exec. `spec` is that of wait(), or of a later attempt, and must outlive it. An empty
  // path: this installation has no helper.
  struct Helper {
    std::string path;
    std::string machine;
  };
  std::unique_ptr<Transport> transport(const JobSpec& spec, const Helper& helper,
                                       StageObserver observer) const;

  // E_ENGINE, with Kubernetes' words, if it has ended pods in which the job ran. It writes them
  // down a moment after the end; whether to wait for that.
  std::optional<Failure> why_ended(bool wait) const;

 private:
  Pods(const JobSpec& spec, os::Fd signals)
      : json_(spec.json),
        timeout_(spec.pods->timeout),
        kubectl_(*spec.pods),
        signals_(std::move(signals)) {}

  struct Look {
    std::vector<PodState> pods;
    std::string of_job;  // why pods are missing
    bool over = false;   // the Job has failed, or is gone
  };
  Result<Look> look(bool ask_for_events) const;
  std::string last_event_of(const std::string& kind, const std::string& name) const;
  Status lift_time_limit() const;
  Result<std::optional<int>> wait_for_pods(std::vector<PodState>& pods);
  std::optional<int> give_up(const std::string& why, std::string_view failure_class,
                             int exit_code) const;
  std::optional<int> taken_signal() const;
  void say(const std::string& text) const;

  const bool json_;
  const Milliseconds timeout_;
  const Kubectl kubectl_;
  const os::Fd signals_;
  PodJob job_;
  std::vector<std::string> names_;  // of the pods that ran when the job began
};

}  // namespace hora::launcher
