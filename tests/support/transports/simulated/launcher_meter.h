// SPDX-License-Identifier: Apache-2.0
// What a job costs its launcher, step by step: wall time, CPU time, messages, bytes.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "launcher/protocol/frame.h"
#include "rendezvous/base/time.h"
#include "tests/support/transports/simulated/simulated_host.h"

namespace hora::test {

class LauncherMeter {
 public:
  void begin(pid_t launcher);
  // A host has come as far as that.
  void reach(Step step);
  void count(launcher::FrameType type, std::size_t bytes, bool to_launcher);
  // After the launcher's end: as one line of JSON. Times in s since begin(), of the first and the
  // last host to reach a step; CPU of the launcher at those moments; "descriptors" when the first
  // host had started.
  std::string report(int hosts, double cpu_s, long max_rss_kib, int exit_code) const;

 private:
  struct Moment {
    double wall_s = 0;
    double cpu_s = 0;
  };
  struct Mark {
    int hosts = 0;
    Moment first;
    Moment last;
  };
  struct Count {
    std::uint64_t messages = 0;
    std::uint64_t bytes = 0;
  };
  Moment now() const;

  pid_t launcher_ = -1;
  Clock::time_point began_;
  std::map<Step, Mark> marks_;
  std::map<launcher::FrameType, Count> counts_[2];  // from the launcher, to it
  int descriptors_ = 0;
};

}  // namespace hora::test
