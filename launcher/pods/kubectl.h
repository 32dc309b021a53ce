// SPDX-License-Identifier: Apache-2.0
// Runs the user's kubectl: commands that answer, and `kubectl exec`, which starts a helper in each
// pod.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "launcher/dial/starter.h"
#include "launcher/dial/step_process.h"
#include "launcher/plan/job_spec.h"
#include "rendezvous/base/result.h"
#include "rendezvous/base/time.h"
#include "rendezvous/os/fd.h"

namespace hora::launcher {

// Runs the user's kubectl, which knows the cluster and has the right to use it.

class Kubectl {
 public:
  explicit Kubectl(const PodsSpec& spec);

  // What kubectl has printed on standard output. Blocks. Errors: kNotFound: there is no kubectl;
  // kDenied: the API server forbids it; kTimedOut; kInterrupted: `interrupt` became readable;
  // kFailed with what kubectl says. Its time limit is also that of its request.
  Result<std::string> run(const std::vector<std::string>& arguments, Milliseconds timeout,
                          int interrupt = -1, const std::string& input = {}) const;

  // For --rsh: with the placeholders of rsh_argv().
  std::vector<std::string> exec_command(const std::string& container) const;

  // "kubectl --namespace x", to be typed.
  std::string shown() const;

 private:
  std::vector<std::string> command_;  // with the namespace
};

// Brings a helper into each pod by `kubectl exec`, which dials the launcher then. What runs in the
// pod afterwards hangs on its own connection, no longer on one through the API server.

class PodStarter : public Starter {
 public:
  struct Request {
    std::vector<std::string> exec_command;  // Kubectl::exec_command()
    std::vector<std::string> pods;
    std::string helper_path;
    std::string machine;  // that the helper is for, as `uname -m` says
    int fan_out = 1;      // at a time
  };

  // `url` is the secret that the helpers get by their standard input.
  PodStarter(os::EventLoop& loop, Request request, std::string url, Handlers handlers);

  // Errors: the helper cannot be read.
  Status begin() override;
  void on_joined(const std::string& pod) override;
  void ask_to_end() override;
  bool owns_helpers() const override { return false; }

 private:
  struct Exec {
    std::unique_ptr<WatchedChild> child;
    std::string output, errors;
  };

  void start_some();
  Status start(const std::string& pod);
  void on_exec_end(const std::string& pod, int status);
  void finish(const std::string& pod);
  std::string why(const std::string& pod, int status) const;

  os::EventLoop& loop_;
  const Request request_;
  const std::string url_;
  const std::string nonce_;
  Handlers handlers_;
  std::shared_ptr<const std::string> input_;
  std::size_t next_ = 0;               // of the pods
  std::map<std::string, Exec> execs_;  // under way
};

}  // namespace hora::launcher
