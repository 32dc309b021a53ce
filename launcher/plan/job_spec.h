// SPDX-License-Identifier: Apache-2.0
// The user's request, as one value: command line, environment and files are read into it once, and
// nothing looks at argv or getenv afterwards. [pure]
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/plan/cache_limits.h"
#include "launcher/plan/chaos.h"
#include "launcher/plan/container.h"
#include "launcher/plan/host_list.h"
#include "launcher/plan/output_lines.h"
#include "launcher/plan/selection.h"

namespace hora::launcher {

enum class RuntimeKind {
  kHora,  // ship libhora and the Python packages, put them on the ranks' paths
  kHost,  // ship the agent only; the ranks use what their host has (the real Horovod included)
};

// What to do with a job whose ranks have written nothing for a long time.
enum class StallPolicy { kIgnore, kWarn, kDump, kKill };
// Which side sends a host what it lacks: when there are many hosts, others that have it.
enum class ShipVia { kAuto, kLauncher, kHosts };
// Where the next rank goes: to the same host until it is full, or to the next one in turn.
enum class MapBy { kSlot, kNode };
enum class StdinPolicy { kNone, kRankZero, kAll };

struct SshOptions {
  std::optional<int> port;
  std::string identity_file;  // empty: ssh-agent, ~/.ssh/config, default keys
  bool accept_new_host_keys = false;
  std::string config_file;  // as ssh -F: instead of ~/.ssh/config and the system's
};

// A variable that an option sets in every rank's environment: {"HOROVOD_CYCLE_TIME", "2.5"}.
struct EnvironmentVariable {
  std::string name;
  std::string value;
  friend bool operator==(const EnvironmentVariable&, const EnvironmentVariable&) = default;
};

// How an engine is asked which hosts an allocation has now.
struct EngineWatch {
  std::string script;  // a line for the shell
  std::string name;    // of what says so, for people: "squeue"
  std::chrono::milliseconds interval{1'000};
};

// The engine in whose allocation a job runs: launcher/engines/.
struct JobEngine {
  std::string name;  // "slurm"
  std::string job;   // its id there; may be empty
  std::string text;  // for people: what it has given
  // The command that reports the job's state, as arguments; empty: the engine has none.
  std::vector<std::string> question;
  // Nothing: the hosts are the user's choice, or stay what they are.
  std::optional<EngineWatch> watch = {};
};

// How the engine starts something on all hosts by one command: launcher/dial/.
struct EngineStep {
  std::string name;  // of its command, for people: "srun"
  // In words, in front of a program and its arguments; {hosts} stands for "a,b", {count} for 2,
  // {gpus} for the sum of their GPUs. The program gets what is written to the command's stdin,
  // unless there is a `folder`.
  std::vector<std::string> start;
  std::map<std::string, int> gpus;  // of each host, where {gpus} is used
  // Brings a file to the hosts of a step: {step}, {from}, {to}. Empty: the engine has no such
  // thing.
  std::vector<std::string> copy;
  // A folder that all hosts see, for what the tasks get: files that only the user may read. Empty:
  // the tasks get it by stdin and by `copy`.
  std::string folder;
  // For sh on a host of the step: which step that is, what the engine calls the host, and the
  // address by which the host knows the machine of the command.
  std::string step_text;
  std::string host_text;
  std::string launcher_text;
  std::string setup;  // what that sh does first; may be empty
};

// A job whose hosts dial the launcher: launcher/dial/.
struct ListenSpec {
  std::string address;     // --listen ADDRESS; empty: every address of this machine
  std::uint16_t port = 0;  // 0: a free one
  std::string file;        // --listen-file; empty: the line is printed
  // The hosts share no secret: each runs its own command line, and gets only its ranks from here.
  bool own_commands = false;
  std::chrono::milliseconds timeout{600'000};  // until all hosts have joined
};

// A job whose hosts are pods that horarun makes: launcher/pods/.
struct PodsSpec {
  std::vector<std::string> kubectl{"kubectl"};  // --kubectl, in words
  std::string name_space;                       // --namespace; empty: that of kubectl's context
  std::string manifest_file;                    // --manifest; the rest is for those without one
  std::string image;                            // --image
  int workers = 1;                              // --workers
  int gpus = 0;                                 // --gpus-per-worker
  std::string gpu_resource = "nvidia.com/gpu";  // --gpu-resource
  // Quantities as Kubernetes writes them, or empty.
  std::string cpus;                            // --cpus-per-worker
  std::string memory;                          // --memory-per-worker
  std::string shm;                             // --shm
  bool dial = false;                           // --dial: agents' streams are not of kubectl exec
  std::chrono::milliseconds timeout{600'000};  // until all pods run: --start-timeout
};

// A job whose hosts may come, go and fail: launcher/elastic/.
struct ElasticSpec {
  int min_np = 1;                // no epoch begins with fewer ranks, the first one with -np or more
  std::optional<int> max_np;     // none: as many as the hosts have slots
  std::string discovery_script;  // --host-discovery-script, a line for the shell
  bool follows_engine = false;   // JobEngine::watch lists the hosts. With neither they are fixed.
  std::chrono::milliseconds timeout{600'000};  // --elastic-timeout
  std::optional<int> reset_limit;
  std::optional<std::pair<int, int>> cooldown_seconds;  // --blacklist-cooldown-range
};

// A job that is started again when it has failed: launcher/job/restart_policy.h.
struct RestartSpec {
  int most = 0;                        // --restarts
  std::chrono::milliseconds delay{0};  // --restart-delay
  int attempt = 0;                     // this one; 0: the first
  std::string run_id;                  // the same in all attempts
};

// Files of --output-filename that are renamed when they have this size: stdout to stdout.1, and so
// on.
struct FileRotation {
  std::uint64_t most_bytes = 0;  // --output-max-size
  int most_files = 5;            // --output-max-files: of each stream, with the one written to
};

// In characters.
struct TerminalSize {
  int rows = 24;
  int columns = 80;
};

// One of several programs of a job: mpirun's "-np 2 ./a : -np 2 ./b".
struct Program {
  std::vector<std::string> command;
  int ranks = 0;                               // consecutive ones, after those of the one before
  std::vector<EnvironmentVariable> variables;  // -x, --env-file before this program
};

// --rankfile: where one rank runs.
struct RankSeat {
  std::size_t host = 0;  // among those of the job
  std::string cores;     // "0:0-3", as binding.h reads it; empty: it is not bound
  friend bool operator==(const RankSeat&, const RankSeat&) = default;
};

struct JobSpec {
  int num_proc = 0;  // -np; 0: every slot of the named hosts
  MapBy map_by = MapBy::kSlot;
  std::vector<Host> hosts;            // empty: this machine, num_proc slots
  std::vector<RankSeat> seats;        // --rankfile, by rank; empty: slots say where ranks run
  bool slots_per_host_auto = false;   // --slots-per-host auto: a bare host offers its GPUs
  std::optional<int> slots_per_host;  // --slots-per-host N: a bare host offers N
  std::vector<std::string> command;   // argv of every rank, never empty; of several programs the
                                      // first one's
  std::vector<Program> programs;      // empty: all ranks run `command`; num_proc is their sum
  std::string working_directory;      // --wdir, else the launcher's own
  std::vector<std::string>
      ship_files;  // --ship: files and folders, copied into the job's folder, where ranks start
  std::uint64_t ship_max_bytes = std::uint64_t{1}
                                 << 30;  // --ship-max-size, of all folders together
  std::string ship_environment;          // --ship-env: a Python environment; empty: none
  ShipVia ship_via = ShipVia::kAuto;     // --ship-via
  RuntimeKind runtime = RuntimeKind::kHora;
  std::optional<ContainerSpec> container;  // none: ranks run on the hosts themselves
  bool rendezvous_tls = false;             // --rendezvous-tls
  bool by_mpirun = false;                  // --mpi
  std::string pmi;           // --pmi: "pmix", "pmi1"; empty: the ranks are served none
  std::string mpi_args;      // as typed, words of a shell
  std::string binding_args;  // likewise; empty: ours

  std::optional<JobEngine> engine;  // none: the hosts are the user's own

  std::optional<ListenSpec> listen;  // none: horarun reaches the hosts

  std::optional<PodsSpec> pods;  // none: the hosts are there already

  std::string transport = "ssh";  // for hosts that are not this machine: transports/registry.h
  bool local_directly = true;     // hosts that are this machine need no transport: --transport auto
  SshOptions ssh;
  // The command that reaches a host, in words: from --rsh, the engine or the transport;
  // empty: ssh.
  std::vector<std::string> rsh_command;
  // What that command says when it refuses a host for now; empty: unknown.
  std::string passing_refusal;
  // Reaches all hosts at once, where it can; else `rsh_command` does, host by host.
  std::optional<EngineStep> engine_step;
  // The engine may start them after this job: those that are not there are tried again.
  bool hosts_come_late = false;
  int fan_out = 64;                             // hosts being connected at one time
  std::vector<std::string> network_interfaces;  // names or CIDRs; empty: choose

  std::chrono::milliseconds start_timeout{30'000};
  std::chrono::milliseconds grace{5'000};            // between TERM and KILL
  std::chrono::milliseconds lease{10'000};           // silence after which either side gives up
  std::optional<std::chrono::milliseconds> timeout;  // --timeout: whole job
  std::optional<int> end_with;                       // a process whose end is the job's

  std::string output_directory;  // --output-filename; empty: none
  std::optional<FileRotation> rotation;
  bool prefix_timestamp = false;
  bool prefix_output = true;             // --no-prefix-output
  std::optional<LinePrefix> own_prefix;  // --output-prefix; none: the usual one
  StdinPolicy stdin_policy = StdinPolicy::kRankZero;
  std::optional<TerminalSize> pty;  // --pty: rank 0 has a terminal, of this size at first
  bool merge_stderr = false;
  std::optional<RankList> shown_ranks;         // --show-ranks; none: the output of all is printed
  LineFilter shown_lines;                      // --show-lines, --hide-lines
  std::vector<EnvironmentVariable> variables;  // -x, --env-file; knobs win
  std::vector<EnvironmentVariable> knobs;      // from options such as --cycle-time-ms

  bool verbose = false;
  bool json = false;
  bool timings = false;
  bool progress = false;
  bool check_hosts = false;               // examine the hosts first
  std::vector<std::string> report_files;  // --report: .json or .html

  StallPolicy on_stall = StallPolicy::kIgnore;
  std::chrono::milliseconds stall_after{300'000};

  bool keep_going = false;  // a rank that fails does not end the others
  std::optional<RestartSpec> restart;
  std::optional<ElasticSpec> elastic;  // none: the hosts and ranks are what they are at the start

  std::optional<ChaosSpec> chaos;  // --chaos: what is done to the ranks on purpose

  std::string bind = "auto";  // as in plan_binding()
  std::string gpus_per_rank;  // empty: all are seen by every rank

  // Limits of the cache on the hosts, at the end of the job. None: nothing is removed.
  CacheLimits cache_limits = kDefaultCacheLimits;
  bool manages_cache = false;  // horarun cache: the agents must know
};

}  // namespace hora::launcher
