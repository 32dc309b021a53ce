// SPDX-License-Identifier: Apache-2.0
// A host's order, checked and made ready, so that starting its ranks can only fail rank by rank.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "launcher/agent/flight_records.h"
#include "launcher/agent/rank_environment.h"
#include "launcher/agent/rank_placement.h"
#include "launcher/agent/rank_program.h"
#include "launcher/process/job_cgroup.h"
#include "launcher/process/spawn.h"
#include "launcher/protocol/messages.h"
#include "rendezvous/os/fd.h"

namespace hora::launcher {

// The agent's own facts, in addition to the order.
struct JobPlace {
  std::string bundle_root;       // empty: there is none here
  std::string environment_root;  // of a Python environment that was sent; empty: none was
  std::string job_directory;     // empty: the job has none
  std::string mark;              // "HORA_AGENT_MARK=<random>"
  std::string cgroup_word;       // names the job's cgroup
  std::string stacks_place;      // StackCollector's meeting place; empty: none
  int stacks_signal = 0;
  CpuMask cpus;  // for ranks that are not bound, where the agent has others; or empty
};

struct StartedRank {
  pid_t pid = -1;
  os::Fd stdin_pipe;   // non-blocking write end; invalid when the rank reads /dev/null
  os::Fd stdout_pipe;  // non-blocking read ends
  os::Fd stderr_pipe;  // invalid for a rank with a terminal, which is the other two
  // The rank's own ends, to keep until it is reaped: else the end of each stream would wake the
  // agent while the rank is still ending, and interrupt it. Invalid where descriptors are scarce.
  os::Fd stdout_write;
  os::Fd stderr_write;
};

// A rank whose process is being made. Its place is fixed: the child reads from it.
struct StartingRank {
  explicit StartingRank(RankEnvironment variables) : environment(std::move(variables)) {}
  StartingRank(const StartingRank&) = delete;
  StartingRank& operator=(const StartingRank&) = delete;

  RankEnvironment environment;
  RankPipes pipes;
  os::Fd pmi;
  std::string program;
  SpawnRequest request;
  std::optional<Spawning> spawning;  // last: it ends before what it reads
};

// Single-threaded. Owns the job's cgroup, its working directory's descriptor and its records.
class PreparedJob {
 public:
  // Checks and opens everything that is equal for all ranks of the host; starts nothing.
  static std::variant<PreparedJob, Failure> prepare(HostOrder order, const JobPlace& place);

  const HostOrder& order() const { return order_; }
  const std::vector<std::string>& notes() const { return placement_.notes; }
  FlightRecords& flight_records() { return flight_records_; }
  int null_device() const { return null_.get(); }
  JobCgroup* cgroup() { return cgroup_ ? &*cgroup_ : nullptr; }

  // The host's part of the environment, for helper programs.
  RankEnvironment host_environment() const { return environment_.for_rank({}); }
  const std::string& bundle_root() const { return bundle_root_; }
  // Adds the variables from the PMI server; call it before ranks start.
  void use_pmi(const PmiReply& reply);

  // Ranks start side by side: begin_start() for several, at most kMostStarting, then finish_start()
  // for each. Either may answer the end of a rank that could not be started.
  static constexpr std::size_t kMostStarting = 16;
  std::variant<std::unique_ptr<StartingRank>, RankExit> begin_start(const RankOrder& rank);
  std::variant<StartedRank, RankExit> finish_start(StartingRank& rank);

 private:
  PreparedJob(HostOrder order, HostEnvironment environment)
      : order_(std::move(order)), environment_(std::move(environment)) {}

  std::vector<char*>& argv_of(int rank);
  SpawnOutcome finish_spawn(StartingRank& rank);

  HostOrder order_;
  HostEnvironment environment_;
  std::string bundle_root_;
  std::string pmi_socket_;  // PmiReply::socket
  os::Fd working_directory_;
  os::Fd null_;
  std::optional<JobCgroup> cgroup_;
  FlightRecords flight_records_;
  std::vector<std::vector<char*>> argvs_;  // by program
  ProgramTable programs_;
  std::optional<unsigned long> open_files_limit_;
  bool keeps_ends_ = false;  // StartedRank::stdout_write
  RankPlacement placement_;
  CpuMask cpus_;              // JobPlace::cpus
  bool one_session_ = false;  // of all ranks; else each has its own
};

}  // namespace hora::launcher
