// SPDX-License-Identifier: Apache-2.0
// Runs the user's kubectl, which knows the cluster and has the right to use it.
#pragma once

#include <string>
#include <vector>

#include "launcher/plan/job_spec.h"
#include "rendezvous/base/duration.h"
#include "rendezvous/base/result.h"
#include "rendezvous/os/fd.h"

namespace hora::launcher {

class Kubectl {
 public:
  explicit Kubectl(const PodsSpec& spec);

  // What kubectl has printed on standard output. Blocks. Errors: kNotFound: there is no kubectl;
  // kDenied: the API server forbids it; kTimedOut; kInterrupted: `interrupt` became readable;
  // kFailed with what kubectl says. Its time limit is also that of its request.
  Result<std::string> run(const std::vector<std::string>& arguments, Milliseconds patience,
                          int interrupt = -1, const std::string& input = {}) const;

  // For --rsh: with the placeholders of rsh_argv().
  std::vector<std::string> exec_command(const std::string& container) const;

  // "kubectl --namespace x", to be typed.
  std::string shown() const;

 private:
  std::vector<std::string> command_;  // with the namespace
};

}  // namespace hora::launcher
