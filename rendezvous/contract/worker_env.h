// SPDX-License-Identifier: Apache-2.0
// The environment variables that give a process of a job its rank and the addresses of the others.
// [pure] docs/reference/environment.md describes each of them.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hora::rendezvous {

namespace env {

// Names that Horovod programs read.
inline constexpr std::string_view kHostname = "HOROVOD_HOSTNAME";
inline constexpr std::string_view kRank = "HOROVOD_RANK";
inline constexpr std::string_view kSize = "HOROVOD_SIZE";
inline constexpr std::string_view kLocalRank = "HOROVOD_LOCAL_RANK";
inline constexpr std::string_view kLocalSize = "HOROVOD_LOCAL_SIZE";
inline constexpr std::string_view kCrossRank = "HOROVOD_CROSS_RANK";
inline constexpr std::string_view kCrossSize = "HOROVOD_CROSS_SIZE";
inline constexpr std::string_view kRendezvousAddress = "HOROVOD_GLOO_RENDEZVOUS_ADDR";
inline constexpr std::string_view kRendezvousPort = "HOROVOD_GLOO_RENDEZVOUS_PORT";
inline constexpr std::string_view kController = "HOROVOD_CONTROLLER";
inline constexpr std::string_view kCpuOperations = "HOROVOD_CPU_OPERATIONS";
inline constexpr std::string_view kGlooInterface = "HOROVOD_GLOO_IFACE";
inline constexpr std::string_view kGlooTimeoutSeconds = "HOROVOD_GLOO_TIMEOUT_SECONDS";
inline constexpr std::string_view kElastic = "HOROVOD_ELASTIC";

// Names that other libraries in a rank read.
inline constexpr std::string_view kNcclInterfaces = "NCCL_SOCKET_IFNAME";
inline constexpr std::string_view kPythonUnbuffered = "PYTHONUNBUFFERED";

// Names that PyTorch's env:// initialisation and torchrun's programs read.
inline constexpr std::string_view kTorchRank = "RANK";
inline constexpr std::string_view kTorchWorldSize = "WORLD_SIZE";
inline constexpr std::string_view kTorchLocalRank = "LOCAL_RANK";
inline constexpr std::string_view kTorchLocalWorldSize = "LOCAL_WORLD_SIZE";
inline constexpr std::string_view kTorchGroupRank = "GROUP_RANK";
inline constexpr std::string_view kMasterAddress = "MASTER_ADDR";
inline constexpr std::string_view kMasterPort = "MASTER_PORT";
// With it, Lightning and others know that the processes of the job exist already.
inline constexpr std::string_view kTorchRunId = "TORCHELASTIC_RUN_ID";

// Hora's own.
inline constexpr std::string_view kJobId = "HORA_JOB_ID";
inline constexpr std::string_view kRendezvousToken = "HORA_RENDEZVOUS_TOKEN";  // a secret
inline constexpr std::string_view kRendezvousTls =
    "HORA_RENDEZVOUS_TLS";  // a certificate's SHA-256
// Each rank is alone on what the launcher calls a host, and several of them share a machine.
inline constexpr std::string_view kPlacesByMachine = "HORA_PLACES_BY_MACHINE";
inline constexpr std::string_view kFlightRecorder = "HORA_FLIGHT_RECORDER";
// In an elastic job: this process's number, which is never used again; its current epoch; whether
// it knows the state of the training (the process sets that itself).
inline constexpr std::string_view kWorker = "HORA_WORKER";
inline constexpr std::string_view kRound = "HORA_ROUND";
inline constexpr std::string_view kKnowsState = "HORA_KNOWS_STATE";

}  // namespace env

using EnvironmentList = std::vector<std::pair<std::string, std::string>>;

// One rank's place in the job. Sizes >= 1, ranks counted from 0.
struct RankPlace {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  int cross_rank = 0;
  int cross_size = 1;
  int host_index = 0;    // the host's place in the host list
  std::string hostname;  // exactly as in the host list
};

// The job's data for every rank of one host. The addresses may differ between hosts, as their
// routes do.
struct RendezvousAddress {
  std::string job_id;
  std::string rendezvous_address;  // numeric, or a name; empty: no rendezvous
  int rendezvous_port = 0;
  std::string token;                    // empty: none
  std::string tls_fingerprint;          // of the rendezvous's certificate; empty: plain HTTP
  std::vector<std::string> interfaces;  // of this host, the selected one first; may be empty
  bool exact_interfaces = false;        // their names begin those of other interfaces, too
  std::string master_address;           // of rank 0's host; empty: unset
  int master_port = 0;
  std::string controller;      // "gloo", "mpi"; empty: the runtime's own choice
  std::string cpu_operations;  // likewise
  bool elastic = false;
};

// The variables that all ranks of a host share, and those of one rank. Names are unique within and
// across the two lists.
EnvironmentList host_environment(const RendezvousAddress& place);
EnvironmentList rank_environment(const RankPlace& place);

// The variables that identify a rank and its job. In the launcher's own environment such a variable
// belongs to another job and must not reach the ranks. Variables that a user may choose
// (HOROVOD_CONTROLLER, HOROVOD_CPU_OPERATIONS, HOROVOD_GLOO_IFACE, NCCL_SOCKET_IFNAME) are not
// among them.
std::span<const std::string_view> job_variable_names();
bool is_job_variable(std::string_view name);

}  // namespace hora::rendezvous
