// A host's order, checked and made ready, so that starting its ranks can only fail rank by rank.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "launcher/agent/flight_records.h"
#include "launcher/agent/rank_environment.h"
#include "launcher/agent/rank_placement.h"
#include "launcher/process/job_cgroup.h"
#include "launcher/protocol/messages.h"
#include "rendezvous/os/fd.h"

namespace hora::launcher {

// What the agent knows in addition to the order.
struct JobPlace {
  std::string host;           // for messages
  std::string bundle_root;    // empty: there is none here
  std::string job_directory;  // empty: the job has none
  std::string mark;           // "HORA_AGENT_MARK=<random>"
  std::string cgroup_word;    // names the job's cgroup
  std::string stacks_place;   // StackCollector's meeting place; empty: none
  int stacks_signal = 0;
};

struct StartedRank {
  pid_t pid = -1;
  os::Fd stdin_pipe;   // non-blocking write end; invalid when the rank reads /dev/null
  os::Fd stdout_pipe;  // non-blocking read ends
  os::Fd stderr_pipe;
};

// A program that could not be started: RankExit's spawn_error and exit_code.
struct RankNotStarted {
  std::string error;
  int exit_code = 126;
};

class PreparedJob {
 public:
  static std::variant<PreparedJob, Failure> prepare(HostOrder order, const JobPlace& place);

  const HostOrder& order() const { return order_; }
  const std::vector<std::string>& notes() const { return placement_.notes; }
  FlightRecords& flight_records() { return flight_records_; }
  JobCgroup* cgroup() { return cgroup_ ? &*cgroup_ : nullptr; }

  // The host's part of the environment, for helper programs.
  RankEnvironment host_environment() const { return environment_.for_rank({}); }
  const std::string& bundle_root() const { return bundle_root_; }
  // Adds the variables from the PMI server; call it before ranks start.
  void use_pmi(const PmiReply& reply);

  std::variant<StartedRank, RankNotStarted> start(const RankOrder& rank);

 private:
  PreparedJob(HostOrder order, HostEnvironment environment)
      : order_(std::move(order)), environment_(std::move(environment)) {}

  Result<std::string> program_for(const RankEnvironment& environment);
  struct RankPipes;
  RankNotStarted describe(const struct SpawnOutcome& outcome, const std::string& program) const;

  HostOrder order_;
  HostEnvironment environment_;
  std::string bundle_root_;
  std::string pmi_socket_;  // PmiReply::socket
  os::Fd working_directory_;
  os::Fd null_;
  std::optional<JobCgroup> cgroup_;
  FlightRecords flight_records_;
  std::vector<char*> argv_;
  std::unordered_map<std::string, Result<std::string>> programs_;  // by PATH
  std::optional<unsigned long> open_files_limit_;
  RankPlacement placement_;
};

}  // namespace hora::launcher
