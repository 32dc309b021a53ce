// SPDX-License-Identifier: Apache-2.0
// Start under a PMI server, such as srun's or mpiexec's.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <string_view>

#include "collectives/launcher_bootstrap.h"
#include "rendezvous/base/result.h"
#include "rendezvous/base/time.h"

namespace hora::collectives {

// A process's side of PMI-1, the text protocol in which MPICH's launchers (Hydra) inform their
// processes about each other over an inherited descriptor. One line a message: "cmd=put kvsname=K
// key=A value=B".

// "cmd=get_result rc=0 value=x" as a map. A word without '=' is left out.  [pure]
std::map<std::string, std::string> parse_pmi_line(std::string_view line);

class PmiClient {
 public:
  // No other part of this process uses the launcher's descriptor.
  explicit PmiClient(int fd) : fd_(fd) {}

  Status begin(Deadline deadline);
  Status put(const std::string& key, const std::string& value, Deadline deadline);
  // Until every process has come; what was put before can be got after it.
  Status barrier(Deadline deadline);
  Result<std::string> get(const std::string& key, Deadline deadline);
  // A process that has begun and ends without this is taken for a crash.
  void finish();

 private:
  Result<std::map<std::string, std::string>> ask(const std::string& line, std::string_view answer,
                                                 Deadline deadline);
  Result<std::string> read_line(Deadline deadline);

  int fd_;
  std::string kvs_;
  std::string unread_;
};

// The processes of MPICH's launchers learn of each other by PMI-1, without any MPI library.

const LauncherBootstrap& pmi_launcher_bootstrap();

}  // namespace hora::collectives
