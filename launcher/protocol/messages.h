// SPDX-License-Identifier: Apache-2.0
// The control messages of the agent protocol, as plain values, and their CBOR form.  [pure]
// Strings may hold any bytes (argv, environment, paths); CBOR keeps them as they are.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/protocol/exit_code.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

struct InterfaceInfo {
  std::string name;     // eth0
  std::string address;  // numeric, IPv4 or IPv6 (no scope)
  int prefix_length = 0;
  bool up = false;
  bool loopback = false;
  bool virtual_bridge = false;  // a bridge, docker0 and the like
  int speed_mbps = 0;           // 0: unknown
  int mtu = 0;
  friend bool operator==(const InterfaceInfo&, const InterfaceInfo&) = default;
};

// A shared library that the launcher has asked for, as programs of this host would find it.
struct HostLibrary {
  std::string soname;  // "libmpi.so.40"
  std::string path;    // empty: it was not found
  std::string fault;   // why programs cannot load it; empty: they can
  friend bool operator==(const HostLibrary&, const HostLibrary&) = default;
};

struct Hello {
  std::string version;       // of the agent
  std::string agent_sha256;  // of its own executable, lower-case hex
  std::string hostname;
  std::string boot_id;             // of the kernel and of the network, as machine_id() says
  std::int64_t pid_namespace = 0;  // its inode; 0: unknown
  std::string home;
  std::string user;
  std::string machine;    // that the agent is built for, as `uname -m` names it
  std::string c_library;  // "glibc 2.31", "musl", "none"; empty: unknown (machine/host_facts.h)
  std::int64_t pid = 0;
  std::vector<std::string> missing_parts;  // hashes of those parts that it needs and lacks
  std::vector<HostLibrary> libraries;      // that it was asked for
  std::string cache_directory;
  int cpus = 0;
  int gpus = 0;
  std::vector<InterfaceInfo> interfaces;
  std::string ssh_connection;  // $SSH_CONNECTION, if any
  int probe_port = 0;          // TCP, answers a prober with `probe_nonce`; 0: no listener
  std::string probe_nonce;
  int free_port = 0;          // reserved until the job ends: MASTER_PORT when this host has rank 0
  std::int64_t clock_ns = 0;  // CLOCK_REALTIME when written
  friend bool operator==(const Hello&, const Hello&) = default;
};

// Which of these addresses really lead to the host that holds the nonce?
struct ProbeTarget {
  int host_index = 0;
  std::vector<std::string> addresses;
  int port = 0;
  std::string nonce;
  friend bool operator==(const ProbeTarget&, const ProbeTarget&) = default;
};
struct Probe {
  std::vector<ProbeTarget> targets;
  int timeout_ms = 2000;
  friend bool operator==(const Probe&, const Probe&) = default;
};
struct ProbeAnswer {
  int host_index = 0;
  std::string address;
  bool reached = false;
  std::string local_address;  // the source address that the kernel used
  std::string error;          // errno text when not reached
  friend bool operator==(const ProbeAnswer&, const ProbeAnswer&) = default;
};
struct ProbeResult {
  std::vector<ProbeAnswer> answers;
  friend bool operator==(const ProbeResult&, const ProbeResult&) = default;
};

struct BundleFile {
  std::string path;  // relative, no "..", '/'-separated
  std::uint64_t size_bytes = 0;
  int mode = 0644;          // with S_IFDIR: a folder, which is listed if nothing is in it
  std::string link_target;  // not empty: a symbolic link inside the bundle
  friend bool operator==(const BundleFile&, const BundleFile&) = default;
};
// One part of a bundle. Its contents follow in the order of its files, as one zstd frame.
struct BundlePart {
  std::string hash;           // of paths, modes and contents: what it is called everywhere
  std::string packed_sha256;  // of the frame, lower-case hex
  std::vector<BundleFile> files;
  friend bool operator==(const BundlePart&, const BundlePart&) = default;
};
// The contents of a bundle on a host.
struct BundleManifest {
  std::vector<BundlePart> parts;
  friend bool operator==(const BundleManifest&, const BundleManifest&) = default;
};
struct ShipFile {
  std::string name;  // relative to the job's working directory
  std::uint64_t size_bytes = 0;
  int mode = 0644;
  std::string packed_sha256;  // of the zstd frame that follows
  friend bool operator==(const ShipFile&, const ShipFile&) = default;
};

// Folders of the user's for the job, in parts that are called by their hashes like those of a
// bundle: those that are copied for the ranks, and a Python environment, which is used where the
// host keeps it. The host answers which parts it lacks, and is sent these alone.
struct OfferTree {
  std::vector<std::string> parts;
  std::vector<std::string> environment;
  // The environment's Python, which is the host's own: /usr/bin/python3.11. Empty: it has one.
  std::string interpreter;
  friend bool operator==(const OfferTree&, const OfferTree&) = default;
};
struct TreeState {
  std::vector<std::string> missing;
  friend bool operator==(const TreeState&, const TreeState&) = default;
};

// A delivery carries one part or file to a host: its header, data and end, as frames. Where hosts
// pass deliveries on, its id is the SHA-256 of these frames, in lower-case hex. The delivery whose
// frames follow must be kept, and served to peers that prove to have the key.
struct KeepDelivery {
  std::string id;
  std::string key;  // the job's; a secret
  friend bool operator==(const KeepDelivery&, const KeepDelivery&) = default;
};
// A host that serves a delivery.
struct DeliverySource {
  std::string host;                    // its name, for people
  std::vector<std::string> addresses;  // numeric, the most promising first
  int port = 0;
  friend bool operator==(const DeliverySource&, const DeliverySource&) = default;
};
// The delivery is to be had from one of these, tried one after the other; then to be kept and
// served as well.
struct FetchDelivery {
  std::string id;
  std::uint64_t size_bytes = 0;
  std::string key;
  std::vector<DeliverySource> sources;
  int timeout_ms = 10'000;  // for each source
  friend bool operator==(const FetchDelivery&, const FetchDelivery&) = default;
};
// Its result.
struct DeliveryReport {
  std::string id;
  bool here = false;                  // whole and unpacked; else the launcher has to send it
  int port = 0;                       // where it is served; 0: nowhere
  std::vector<std::string> refusals;  // why each of the first sources was of no use, in their order
  friend bool operator==(const DeliveryReport&, const DeliveryReport&) = default;
};

enum class StdinSource : std::uint8_t { kNull = 0, kStream = 1 };

struct RankOrder {
  int rank = 0;
  int local_rank = 0;
  std::vector<std::pair<std::string, std::string>> environment;  // on top of HostOrder's
  StdinSource stdin_source = StdinSource::kNull;
  friend bool operator==(const RankOrder&, const RankOrder&) = default;
};

// A host of the job and its ranks, for the PMI server.
struct PmiHost {
  std::string name;
  std::vector<int> ranks;
  friend bool operator==(const PmiHost&, const PmiHost&) = default;
};

// A program of a job that has several; it is that of the ranks from `first_rank` on.
struct ProgramOrder {
  int first_rank = 0;
  std::vector<std::string> argv;
  friend bool operator==(const ProgramOrder&, const ProgramOrder&) = default;
};

struct HostOrder {
  std::string job_id;             // also in every rank's environment: HORA_JOB_ID
  std::string working_directory;  // must exist, unless ship_directory is set
  bool ship_directory = false;    // run in the job's own folder, which holds the shipped files
  std::vector<std::string> argv;
  std::vector<ProgramOrder> more_programs;  // after `argv`, by rank; empty: all ranks run `argv`
  std::vector<std::pair<std::string, std::string>> environment;  // for every rank
  // Names that the agent adds from its own environment (HOME, TMPDIR, ...), where it has them and
  // `environment` does not; a trailing '*' stands for any rest, a leading '!' takes names out
  // again.
  std::vector<std::string> own_variables;
  // Prepended to a path variable of the environment, the bundle's root put for "@bundle@":
  // {"PYTHONPATH", "@bundle@/python"}.
  std::vector<std::pair<std::string, std::string>> prepend_paths;
  std::vector<RankOrder> ranks;
  std::int64_t grace_ms = 5000;
  std::int64_t lease_ms = 10000;
  std::int64_t output_window_bytes = 256 * 1024;
  std::string bind = "none";   // --bind, as in plan_binding()
  std::string gpus_per_rank;   // --gpus-per-rank: empty, auto, or a number
  bool limit_threads = false;  // OMP_NUM_THREADS by cores and ranks, unless it is set
  std::string pmi;  // "pmix", "pmi1": the ranks are served by hora-pmix, ...; empty: none
  std::vector<PmiHost> pmi_hosts;  // all of the job's, when pmi is not empty
  int pmi_host = 0;                // this one's place among them
  friend bool operator==(const HostOrder&, const HostOrder&) = default;
};

struct Started {
  std::vector<std::pair<int, std::int64_t>> pids;  // rank, pid
  std::vector<std::string> notes;                  // bindings and thread counts, for people
  friend bool operator==(const Started&, const Started&) = default;
};

// How a rank ended: it exited, a signal ended it, or it could not be started.
struct RankExit {
  int rank = 0;
  int exit_code = 0;  // when signal == 0; 126 or 127 when it could not be started
  int signal = 0;
  bool core_dumped = false;
  // The class of its failure (launcher/failures/failure_code.h) where the agent knows more than
  // exit code and signal: "E_INTERPRETER", "E_OUT_OF_MEMORY".
  std::string code;
  // The step of its start that failed, and why. start_failure_text() of launcher/report words it.
  SpawnStage stage = SpawnStage::kNone;
  int errnum = 0;                 // Linux's numbers; 0: no system call failed
  std::string program;            // that was searched or executed
  std::string interpreter;        // kInterpreter: as the program names it; empty: not known
  bool terminated_by_us = false;  // collateral: we had sent it TERM or KILL
  std::int64_t clock_ns = 0;      // CLOCK_REALTIME of the agent's host
  std::int64_t max_rss_bytes = 0;
  std::int64_t user_time_us = 0;
  std::int64_t system_time_us = 0;
  std::string last_stderr;  // the last lines, at most 4 KiB
  std::string hint;  // what the host knows about its end: "the kernel's out-of-memory killer ..."
  std::string last_operation;  // "was in allreduce 'x' for 2.1 s"; empty: not known
  std::string lost_record;     // "its timeline: No space left on device"; empty: nothing is lost
  friend bool operator==(const RankExit&, const RankExit&) = default;
};

// The collective that a rank is in, by its flight recorder.
struct CollectiveOperation {
  std::string text;      // "allreduce 'grad/7'"
  bool running = false;  // agreed by all; else the rank waits for others to ask for it, too
  std::int64_t for_ms = 0;
  std::int64_t process_set = 0;
  friend bool operator==(const CollectiveOperation&, const CollectiveOperation&) = default;
};
struct CollectiveStanding {
  std::string state;  // "": does not use the runtime; "joining", "joined", "left"
  std::int64_t for_ms = 0;
  std::int64_t process_sets = 0;                // bit N: a member of process set N
  std::vector<CollectiveOperation> operations;  // the oldest first
  std::string last;                             // the newest that has ended
  std::int64_t last_ended_ms = 0;               // ago
  friend bool operator==(const CollectiveStanding&, const CollectiveStanding&) = default;
};

// Where the processes of the ranks stand, asked for while the job hangs.
struct ProcessStacks {
  int rank = 0;
  std::int64_t pid = 0;
  bool leader = false;  // the rank itself, not a child of it
  std::string program;  // the kernel's name of it
  std::string state;    // "S futex_wait_queue": the kernel's state, and where it waits there
  std::int64_t cpu_ms = 0;
  int threads = 0;
  std::string stacks;           // what it said itself, all threads; empty when it cannot
  CollectiveStanding standing;  // of the leader
  friend bool operator==(const ProcessStacks&, const ProcessStacks&) = default;
};
struct StackReport {
  std::vector<ProcessStacks> processes;
  friend bool operator==(const StackReport&, const StackReport&) = default;
};

struct Goodbye {
  int survivors = 0;  // processes of the job that could not be ended
  std::vector<std::int64_t> survivor_pids;
  int killed = 0;        // stray processes that had to be killed
  bool forking = false;  // the survivors fork and end: these are the ones that were seen last
  bool stays = false;    // the agent ends when kLeave comes
  friend bool operator==(const Goodbye&, const Goodbye&) = default;
};

// A fault that the driver of a host's GPU has written to the kernel's log while the job ran.
struct GpuFault {
  std::string device;  // "0000:3b:00"
  int xid = 0;
  int rank = -1;         // whose process it was; -1: of none of ours, or not known
  std::int64_t pid = 0;  // as the driver says; 0: it does not
  std::string program;
  std::string text;  // the driver's own words
  friend bool operator==(const GpuFault&, const GpuFault&) = default;
};

// Why a host cannot go on. The launcher knows the host by the link that it came through; a host's
// claim about another host does not count.
struct Failure {
  std::string code;          // "E_SSH_AUTH", "E_CWD", ...: launcher/failures/failure_code.h
  std::string message;       // one sentence: what is wrong, without the host
  std::string advice;        // what to do; may be empty
  std::string subject = {};  // a transport's name for the host: "host node3 (10.0.0.3:22)"
  friend bool operator==(const Failure&, const Failure&) = default;
};

struct LogLine {
  int level = 0;  // 0 trace .. 4 error
  std::string message;
  friend bool operator==(const LogLine&, const LogLine&) = default;
};

// The message from an agent to the PMI server that it starts next to its ranks, and the answer. In
// a pipe, each follows its length, 4 bytes, little-endian.
struct PmiJob {
  std::string job_id;
  std::vector<PmiHost> hosts;
  int own_host = 0;
  std::string directory;           // for its files and the ranks'; removed by the agent
  std::vector<int> next_programs;  // the first rank of each program but the first one
  friend bool operator==(const PmiJob&, const PmiJob&) = default;
};
// PMIX_APPNUM, PMI's appnum: the place of the rank's program among those of the job, from 0.
int program_number(const PmiJob& job, int rank);

struct PmiReply {
  std::string error;  // why there is no server; empty: there is one
  // Each rank of this host needs this to find it.
  std::vector<std::pair<int, std::vector<std::pair<std::string, std::string>>>> environment;
  // Where each rank is connected to, by a descriptor that it inherits (PMI_FD): a name in the
  // abstract space of Unix sockets. Empty: ranks connect by themselves.
  std::string socket;
  friend bool operator==(const PmiReply&, const PmiReply&) = default;
};

std::string encode(const Hello&);
std::string encode(const Probe&);
std::string encode(const ProbeResult&);
std::string encode(const BundlePart&);
std::string encode(const BundleManifest&);
std::string encode(const ShipFile&);
std::string encode(const OfferTree&);
std::string encode(const TreeState&);
std::string encode(const KeepDelivery&);
std::string encode(const FetchDelivery&);
std::string encode(const DeliveryReport&);
std::string encode(const HostOrder&);
std::string encode(const Started&);
std::string encode(const RankExit&);
std::string encode(const StackReport&);
std::string encode(const Goodbye&);
std::string encode(const GpuFault&);
std::string encode(const Failure&);
std::string encode(const LogLine&);
std::string encode(const PmiJob&);
std::string encode(const PmiReply&);

// Bytes from the network: anything malformed is an Error that names the field, never a throw.
Result<Hello> decode_hello(std::string_view bytes);
Result<Probe> decode_probe(std::string_view bytes);
Result<ProbeResult> decode_probe_result(std::string_view bytes);
Result<BundlePart> decode_bundle_part(std::string_view bytes);
Result<BundleManifest> decode_bundle_manifest(std::string_view bytes);
Result<ShipFile> decode_ship_file(std::string_view bytes);
Result<OfferTree> decode_offer_tree(std::string_view bytes);
Result<TreeState> decode_tree_state(std::string_view bytes);
Result<KeepDelivery> decode_keep_delivery(std::string_view bytes);
Result<FetchDelivery> decode_fetch_delivery(std::string_view bytes);
Result<DeliveryReport> decode_delivery_report(std::string_view bytes);
Result<HostOrder> decode_host_order(std::string_view bytes);
Result<Started> decode_started(std::string_view bytes);
Result<RankExit> decode_rank_exit(std::string_view bytes);
Result<StackReport> decode_stack_report(std::string_view bytes);
Result<Goodbye> decode_goodbye(std::string_view bytes);
Result<GpuFault> decode_gpu_fault(std::string_view bytes);
Result<Failure> decode_failure(std::string_view bytes);
Result<LogLine> decode_log_line(std::string_view bytes);
Result<PmiJob> decode_pmi_job(std::string_view bytes);
Result<PmiReply> decode_pmi_reply(std::string_view bytes);

}  // namespace hora::launcher
