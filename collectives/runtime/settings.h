// SPDX-License-Identifier: Apache-2.0
// The settings of the runtime, from the environment, and those that have no effect.  [pure]
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/autotune/autotuner.h"
#include "collectives/runtime/rank_info.h"
#include "rendezvous/base/result.h"

namespace hora::collectives {

// What the environment says about this process and its job.
// docs/reference/runtime.md lists every variable.

struct Settings {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  int cross_rank = 0;
  int cross_size = 1;
  std::string hostname = "localhost";
  bool places_by_machine = false;  // local and cross places are found when the ranks have met

  std::string rendezvous_address;  // empty: none
  int rendezvous_port = 0;
  std::string rendezvous_token;  // a secret
  std::string rendezvous_tls;    // its certificate's SHA-256, in hexadecimal; empty: plain HTTP
  std::string job_id;
  std::string round;       // of an elastic job: which incarnation of the world this is
  int worker = -1;         // by which the agent knows this process, if not by its rank
  int recorder_slot = -1;  // of the agent's file, if not the local rank
  std::string interface;   // name of the one for the traffic between hosts; empty: by the route
  std::chrono::milliseconds start_timeout{30000};
  // In a job of more ranks on several hosts, the leaders of the hosts relay control messages.
  int star_ranks = 256;

  std::string log_level;  // as given
  bool log_hide_time = false;
  std::string flight_recorder;  // the agent's file; empty: none

  std::string timeline;  // path, or "DYNAMIC"; empty: none
  bool timeline_mark_cycles = false;
  std::int64_t timeline_limit_mb = 1024;
  bool no_nvtx_ranges = false;

  Choice hierarchical_allreduce = Choice::kAuto;
  Choice hierarchical_allgather = Choice::kAuto;

  bool stall_check = true;
  std::chrono::seconds stall_warning{60};
  std::chrono::seconds stall_shutdown{0};  // 0: never

  // What autotuning begins with, and of that what the user has left to it.
  Parameters parameters;
  Tunables tunable{true, true, true, true};
  bool autotune = false;
  std::string autotune_log;  // path; empty: none
  AutotuneOptions autotune_options;

  // By local rank: the core of the runtime's thread; empty: any.
  std::vector<int> thread_affinity;

  bool group_fusion = true;            // operations of different groups may share a step
  std::int64_t cache_capacity = 1024;  // tensors of a process set; 0: off
  bool deterministic = false;          // the same inputs on the same ranks give the same bits
  // Only these backends ("shm,gloo"), or all but those after a minus ("-mpi"); empty: all that
  // work.
  std::string backends;
  std::string
      cpu_operations;  // "mpi", "gloo", "ccl" or empty: the backend of tensors in host memory
};

// Answers a variable of the environment; nothing when it is not set.
using Variables = std::function<std::optional<std::string>(std::string_view)>;

// kUsage names the variable, what was found and what was expected.
Result<Settings> parse_settings(const Variables& variables);

// Variables of Horovod's runtime, and values of our own, that have no effect here.
// A user who has set one wants something, so it is reported once, with the reason.

// One line for all that ask for something; empty: none does. HORA_SIMD is one of them where it
// names anything but `instruction_set`, which the kernels use.
std::string describe_unused_settings(const Variables& variables, std::string_view instruction_set);

}  // namespace hora::collectives
