// SPDX-License-Identifier: Apache-2.0
// Whether a job that has failed is started again (--restarts), and on which hosts.  [pure]
//
// A job is started again when a rank or a host has failed. It is not when the user has ended it,
// when a time limit has, when the failure is horarun's own, or when starting it again can only
// repeat the failure: the program was called wrongly, or the same error came at once several times.
#pragma once

#include <string>
#include <vector>

#include "launcher/job/job_state.h"
#include "launcher/plan/job_spec.h"
#include "launcher/plan/plan.h"
#include "rendezvous/base/time.h"

namespace hora::launcher {

class RestartPolicy {
 public:
  // So often in a row may an attempt fail in the same way within kAtOnce of the start of its ranks.
  static constexpr std::size_t kSameErrors = 3;
  static constexpr Milliseconds kAtOnce{10'000};

  // An attempt that has failed.
  struct Attempt {
    std::string cause;  // "rank 1 on b: exit code 3"
    std::string error;  // what attempts share that failed alike
    int exit_code = 0;
    Milliseconds ran{0};  // since all ranks ran; 0: they never did
  };
  struct Decision {
    bool again = false;
    std::string why_not;  // for people; empty where the outcome says all
  };
  // How an attempt ended, besides its outcome.
  struct End {
    bool interrupted = false;  // the user has sent a signal, even if it was not the cause
    Milliseconds ran{0};
  };

  explicit RestartPolicy(int most) : most_(most) {}

  Decision decide(const JobOutcome& outcome, const std::vector<HostPlan>& hosts, const End& end);

  // "restart 1 of 3"
  std::string count_text() const;
  const std::vector<Attempt>& failed() const { return failed_; }

 private:
  int most_;
  std::vector<Attempt> failed_;
};

// The job for the next attempt: without the hosts that failed, and with fewer ranks where those
// that are left have no room for all. When no host would be left, all are tried again.
JobSpec restarted(JobSpec spec, const JobOutcome& outcome, const std::vector<HostPlan>& hosts);

// What differs from `before`: "without host b, with 2 ranks instead of 4"; may be empty.
std::string restart_changes(const JobSpec& before, const JobSpec& after);

}  // namespace hora::launcher
