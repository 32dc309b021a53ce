// SPDX-License-Identifier: Apache-2.0
// The messages between launcher and agent, as plain values, each described in one place: its
// fields, limits and turn, as schema.h explains.  [pure]
// docs/reference/agent-protocol.md has the same in tables; a change edits both.
//
// A new message is a FrameType, a struct and an entry in AgentMessage or LauncherMessage.
//
// Strings may hold any bytes (argv, environment, paths); CBOR keeps them as they are.
#pragma once

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "launcher/protocol/exit_code.h"
#include "launcher/protocol/schema.h"
#include "rendezvous/base/time.h"

namespace hora::launcher {

enum class FrameType : std::uint8_t {
  // agent to launcher
  kHello = 1,
  kProbeResult = 2,
  kReady = 3,
  kStarted = 4,
  kOutput = 5,
  kOutputEnd = 6,
  kExit = 7,
  kGoodbye = 8,
  kFailure = 9,
  kLog = 10,
  kInputAck = 11,
  kStacks = 12,
  kProgress = 13,
  kGpuFault = 14,
  kDelivered = 15,
  kTreeState = 16,
  kRelayPort = 17,
  kRelayOpen = 18,
  kRanksGone = 20,
  kSamples = 21,
  // launcher to agent
  kProbe = 32,
  kPart = 33,      // BundlePart; followed by kData frames, then kDataEnd
  kShipFile = 34,  // ShipFile; likewise
  kData = 35,      // bytes of a zstd frame
  kDataEnd = 36,
  kOrder = 37,
  kStart = 38,
  kInput = 39,
  kInputEnd = 40,
  kOutputAck = 41,
  kSignal = 42,
  kTerminate = 43,
  kSuspend = 44,  // from an agent: its answer
  kResume = 45,
  kDump = 46,
  kEndRank = 47,
  kSignalRank = 48,
  kKeep = 49,
  kFetch = 50,
  kForget = 51,
  kTree = 52,
  kRelay = 53,
  kSample = 54,
  kLeave = 55,
  kResize = 56,
  // both
  kHeartbeat = 64,
  kRelayData = 65,
  kRelayTaken = 66,
};
static_assert(kHelloFrame == FrameType::kHello);

// --- limits that several messages or other code share --------------------------------------------

// The memory that a host uses for others, for all deliveries together.
inline constexpr std::size_t kMostKeptBytes = 512u << 20;

inline constexpr std::size_t kMostInterfaces = 1024;
inline constexpr std::size_t kMostParts = 64;       // of a bundle; libraries that are looked for
inline constexpr std::size_t kMostNotes = 8;        // of a placement, and two for each rank
inline constexpr std::size_t kMostLogLines = 1000;  // of one agent, from its start to its end
inline constexpr std::size_t kMostSources = 8;      // of a delivery
inline constexpr std::size_t kMostRelayed = 64 * 1024;  // bytes of one frame
inline constexpr std::size_t kMostRelayedConnections = 8192;
inline constexpr std::size_t kMostGpuFaults = 32;  // of one job on one host
inline constexpr std::size_t kMostSurvivorPids = 64;
inline constexpr std::size_t kMostProcesses = 2048;   // of a stack report
inline constexpr std::size_t kMostStacks = 3u << 20;  // bytes, of all its processes
inline constexpr std::size_t kMostOperations = 64;
inline constexpr int kMostGpus = 1024;

inline constexpr std::size_t kMostName = 256;  // bytes: of a host, a user, a program
inline constexpr std::size_t kMostPath = 4096;
inline constexpr std::size_t kMostText = 4096;         // of a sentence for people
inline constexpr std::size_t kMostFailureText = 8192;  // of one that lists what was tried
inline constexpr std::size_t kMostLastWords = 4096;    // of a rank, on standard error

// Far beyond real values, and so far below 2^63 that sums of them do not overflow.
inline constexpr std::int64_t kLatestClockNs = 4'000'000'000'000'000'000;  // in the year 2096
inline constexpr std::int64_t kMostBytes = std::int64_t{1} << 50;
inline constexpr std::int64_t kLongestUs = 1'000'000'000'000'000;    // 31 years of one CPU
inline constexpr std::int64_t kLongestMs = 10'000'000'000'000;       // 317 years
inline constexpr std::int64_t kMostCounted = std::int64_t{1} << 60;  // collectives
inline constexpr std::int64_t kLargestPid = 0x7fffffff;
inline constexpr std::int64_t kLargestPort = 65'535;
inline constexpr std::int64_t kMostCharacters = 65'535;  // of a terminal, in a row or column
inline constexpr std::int64_t kLargestErrno = 4'095;     // the kernel's MAX_ERRNO
inline constexpr std::int64_t kLargestSignal = 64;

// Bytes. A list of ranks makes its messages longer: see AgentConversation.
inline constexpr std::size_t kLargestStackReport = 8u << 20;
inline constexpr std::size_t kLargestPartName = 160;   // of a hash, with its part of the list
inline constexpr std::size_t kLargestNote = 2 * 1024;  // likewise
inline constexpr std::size_t kMostLastLine = 128;
inline constexpr std::size_t kLargestSample = 512;  // of a rank
inline constexpr std::size_t kLargestAnswer = 512;  // of a probe, for one address
// Parts of any agent's message, stack reports included.
inline constexpr std::size_t kMostAgentItems = 1u << 18;

// --- both ways -----------------------------------------------------------------------------------

struct Heartbeat {
  static constexpr MessageRule kRule{FrameType::kHeartbeat, "heartbeat", Layout::kNumbers};
  static void fields(auto&, auto&) {}
};

// Of a connection to the rendezvous that the agent carries. Without bytes: it has ended.
struct RelayedBytes {
  static constexpr MessageRule kRule{FrameType::kRelayData, "relayed bytes", Layout::kNumbers,
                                     Longest{kMostRelayed}, After{FrameType::kRelayPort}};
  std::uint32_t number = 0;  // of the connection
  Tail bytes = {};
  static void fields(auto& visit, auto& m) {
    visit("number", m.number);
    visit("bytes", m.bytes);
  }
};
// The bytes of the last RelayedBytes are delivered: the next ones may come.
struct RelayedBytesTaken {
  static constexpr MessageRule kRule{FrameType::kRelayTaken, "relay acknowledgement",
                                     Layout::kNumbers, After{FrameType::kRelayPort}};
  std::uint32_t number = 0;
  static void fields(auto& visit, auto& m) { visit("number", m.number); }
};

// --- from an agent -------------------------------------------------------------------------------

struct InterfaceInfo {
  std::string name;     // eth0
  std::string address;  // numeric, IPv4 or IPv6 (no scope)
  int prefix_length = 0;
  bool up = false;
  bool loopback = false;
  bool virtual_bridge = false;  // a bridge, docker0 and the like
  int speed_mbps = 0;           // 0: unknown
  int mtu = 0;
  static void fields(auto& visit, auto& m) {
    visit("name", m.name, Line{kMostName});
    visit("address", m.address, Line{kMostName});
    visit("prefix_length", m.prefix_length, Range{0, 128});
    visit("up", m.up);
    visit("loopback", m.loopback);
    visit("virtual_bridge", m.virtual_bridge);
    visit("speed_mbps", m.speed_mbps, Range{0, kLargestPid});
    visit("mtu", m.mtu, Range{0, kLargestPid});
  }
  std::string contradiction() const;
  friend bool operator==(const InterfaceInfo&, const InterfaceInfo&) = default;
};

// A shared library that the launcher has asked for, as programs of this host would find it.
struct HostLibrary {
  std::string soname;  // "libmpi.so.40"
  std::string path;    // empty: it was not found
  std::string fault;   // why programs cannot load it; empty: they can
  static void fields(auto& visit, auto& m) {
    visit("soname", m.soname, Line{kMostName});
    visit("path", m.path, Bytes{kMostPath});
    visit("fault", m.fault, Line{kMostPath});
  }
  friend bool operator==(const HostLibrary&, const HostLibrary&) = default;
};

// The first message, always.
struct Hello {
  static constexpr MessageRule kRule{FrameType::kHello, "hello", Longest{512 * 1024}, BeforeHello{},
                                     Times{1}};
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
  static void fields(auto& visit, auto& m) {
    visit("version", m.version, Line{kMostName});
    visit("agent_sha256", m.agent_sha256, Line{kMostName});
    visit("hostname", m.hostname, Line{kMostName});
    visit("boot_id", m.boot_id, Line{kMostName});
    visit("pid_namespace", m.pid_namespace, Range{0, UINT32_MAX});
    visit("home", m.home, Bytes{kMostPath});
    visit("user", m.user, Line{kMostName});
    visit("machine", m.machine, Line{kMostName});
    visit("c_library", m.c_library, Line{kMostName});
    visit("pid", m.pid, Range{0, kLargestPid});
    visit("missing_parts", m.missing_parts, AtMost{kMostParts}, Line{kMostName});
    visit("libraries", m.libraries, AtMost{kMostParts});
    visit("cache_directory", m.cache_directory, Bytes{kMostPath});
    visit("cpus", m.cpus, Range{0, 1 << 20});
    visit("gpus", m.gpus, Range{0, kMostGpus});
    visit("interfaces", m.interfaces, AtMost{kMostInterfaces});
    visit("ssh_connection", m.ssh_connection, Line{kMostName});
    visit("probe_port", m.probe_port, Range{0, kLargestPort});
    visit("probe_nonce", m.probe_nonce, Line{kMostName});
    visit("free_port", m.free_port, Range{0, kLargestPort});
    visit("clock_ns", m.clock_ns, Range{0, kLatestClockNs});
  }
  friend bool operator==(const Hello&, const Hello&) = default;
};

struct ProbeAnswer {
  int host_index = 0;
  std::string address;
  bool reached = false;
  std::string local_address;  // the source address that the kernel used
  std::string error;          // errno text when not reached
  static void fields(auto& visit, auto& m) {
    visit("host_index", m.host_index);
    visit("address", m.address, Line{kMostName});
    visit("reached", m.reached);
    visit("local_address", m.local_address, Line{kMostName});
    visit("error", m.error, Line{kMostName});
  }
  std::string contradiction() const;
  friend bool operator==(const ProbeAnswer&, const ProbeAnswer&) = default;
};
// One answer for each address of a Probe, in the order asked.
struct ProbeResult {
  static constexpr MessageRule kRule{FrameType::kProbeResult, "probe result",
                                     Answers{FrameType::kProbe}};
  std::vector<ProbeAnswer> answers;
  static void fields(auto& visit, auto& m) { visit("answers", m.answers); }
  friend bool operator==(const ProbeResult&, const ProbeResult&) = default;
};

// Its order is prepared: from now on only single ranks can fail to start.
struct AgentReady {
  static constexpr MessageRule kRule{FrameType::kReady,        "ready",
                                     Layout::kNumbers,         Longest{kMostPath},
                                     After{FrameType::kOrder}, Times{1}};
  std::string bundle;  // where the runtime lies on the host; empty where its ranks get none
  static void fields(auto& visit, auto& m) { visit("bundle", m.bundle, Verbatim{kMostPath}); }
};

struct Started {
  static constexpr MessageRule kRule{FrameType::kStarted, "started", After{FrameType::kStart},
                                     Times{1}};
  std::vector<std::pair<int, std::int64_t>> pids;  // rank, pid
  std::vector<std::string> notes;                  // bindings and thread counts, for people
  static void fields(auto& visit, auto& m) {
    visit("pids", m.pids, Range{1, kLargestPid});
    visit("notes", m.notes, AtMost{kMostNotes + 2 * m.pids.size()}, Line{kLargestNote / 2});
  }
  friend bool operator==(const Started&, const Started&) = default;
};

// Raw, split anywhere. The agent writes it without this struct: OutputPump.
struct RankOutput {
  static constexpr MessageRule kRule{FrameType::kOutput, "output", Layout::kNumbers,
                                     After{FrameType::kStarted}};
  int rank = 0;
  std::uint8_t stream = 0;  // 1 stdout, 2 stderr
  Tail bytes = {};
  static void fields(auto& visit, auto& m) {
    visit("rank", m.rank);
    visit("stream", m.stream, Range{1, 2});
    visit("bytes", m.bytes);
  }
};
struct RankOutputEnd {
  static constexpr MessageRule kRule{FrameType::kOutputEnd, "end of output", Layout::kNumbers,
                                     After{FrameType::kStarted}};
  int rank = 0;
  std::uint8_t stream = 0;
  static void fields(auto& visit, auto& m) {
    visit("rank", m.rank);
    visit("stream", m.stream, Range{1, 2});
  }
};

// How a rank ended: it exited, a signal ended it, or it could not be started.
// What a rank has done so far with the runtime.
struct RankCounters {
  bool uses_runtime = false;  // if not, the others say nothing
  std::int64_t collectives = 0;
  std::int64_t bytes = 0;      // of the tensors that it gave to them
  std::int64_t waited_us = 0;  // for other ranks
  std::int64_t last_ms = -1;   // since its last collective ended; -1: none has
  // Of the GPUs that it sees, used by any process; none: not known.
  int gpu_count = 0;
  int gpu_percent = -1;       // of the last second, their mean; -1: not known
  int gpu_mean_percent = -1;  // of all the time
  std::int64_t gpu_bytes = 0;
  std::int64_t gpu_peak_bytes = 0;
  std::int64_t gpu_total_bytes = 0;
  static void fields(auto& visit, auto& m) {
    visit("uses_runtime", m.uses_runtime);
    visit("collectives", m.collectives, Range{0, kMostCounted});
    visit("bytes", m.bytes, Range{0, kMostCounted});
    visit("waited_us", m.waited_us, Range{0, kLongestUs});
    visit("last_ms", m.last_ms, Range{-1, kLongestMs});
    visit("gpu_count", m.gpu_count, Range{0, kMostGpus});
    visit("gpu_percent", m.gpu_percent, Range{-1, 100});
    visit("gpu_mean_percent", m.gpu_mean_percent, Range{-1, 100});
    visit("gpu_bytes", m.gpu_bytes, Range{0, kMostBytes});
    visit("gpu_peak_bytes", m.gpu_peak_bytes, Range{0, kMostBytes});
    visit("gpu_total_bytes", m.gpu_total_bytes, Range{0, kMostBytes});
  }
  friend bool operator==(const RankCounters&, const RankCounters&) = default;
};

struct RankExit {
  static constexpr MessageRule kRule{FrameType::kExit, "exit of a rank", Longest{64 * 1024},
                                     After{FrameType::kStarted}};
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
  RankCounters counters;
  static void fields(auto& visit, auto& m) {
    visit("rank", m.rank);
    visit("exit_code", m.exit_code, Range{0, 255});
    visit("signal", m.signal, Range{0, kLargestSignal});
    visit("core_dumped", m.core_dumped);
    visit("code", m.code, Line{kMostName});
    visit("stage", m.stage);
    visit("errnum", m.errnum, Range{0, kLargestErrno});
    visit("program", m.program, Bytes{kMostPath});
    visit("interpreter", m.interpreter, Bytes{kMostPath});
    visit("terminated_by_us", m.terminated_by_us);
    visit("clock_ns", m.clock_ns, Range{0, kLatestClockNs});
    visit("max_rss_bytes", m.max_rss_bytes, Range{0, kMostBytes});
    visit("user_time_us", m.user_time_us, Range{0, kLongestUs});
    visit("system_time_us", m.system_time_us, Range{0, kLongestUs});
    visit("last_stderr", m.last_stderr, Bytes{kMostLastWords});
    visit("hint", m.hint, Line{kMostText});
    visit("last_operation", m.last_operation, Line{kMostText});
    visit("lost_record", m.lost_record, Line{kMostName});
    visit("counters", m.counters);
  }
  std::string contradiction() const;
  friend bool operator==(const RankExit&, const RankExit&) = default;
};

// Of the standard input of a rank: it has read these bytes, or will never read them.
struct InputTaken {
  static constexpr MessageRule kRule{FrameType::kInputAck, "input acknowledgement",
                                     Layout::kNumbers, After{FrameType::kOrder}};
  int rank = 0;
  std::size_t bytes = 0;
  static void fields(auto& visit, auto& m) {
    visit("rank", m.rank);
    visit("bytes", m.bytes);
  }
};

// How many ranks of the host, of those that use the runtime, ...
struct RankProgress {
  static constexpr MessageRule kRule{FrameType::kProgress, "progress", Layout::kNumbers,
                                     After{FrameType::kStarted}};
  std::uint32_t meeting = 0;  // have begun to meet the others
  std::uint32_t joined = 0;   // have met them
  std::uint32_t worked = 0;   // have come through a collective
  static void fields(auto& visit, auto& m) {
    visit("meeting", m.meeting);
    visit("joined", m.joined);
    visit("worked", m.worked);
  }
};

// The collective that a rank is in, by its flight recorder.
struct CollectiveOperation {
  std::string text;      // "allreduce 'grad/7'"
  bool running = false;  // agreed by all; else the rank waits for others to ask for it, too
  std::int64_t for_ms = 0;
  std::int64_t process_set = 0;
  static void fields(auto& visit, auto& m) {
    visit("text", m.text, Line{kMostName});
    visit("running", m.running);
    visit("for_ms", m.for_ms, Range{0, kLongestMs});
    visit("process_set", m.process_set, Range{-kLargestPid - 1, kLargestPid});
  }
  friend bool operator==(const CollectiveOperation&, const CollectiveOperation&) = default;
};
struct CollectiveStanding {
  std::string state;  // "": does not use the runtime; "joining", "joined", "left"
  std::int64_t for_ms = 0;
  std::int64_t process_sets = 0;                // bit N: a member of process set N
  std::vector<CollectiveOperation> operations;  // the oldest first
  std::string last;                             // the newest that has ended
  std::int64_t last_ended_ms = 0;               // ago
  static void fields(auto& visit, auto& m) {
    visit("state", m.state, Line{kMostName});
    visit("for_ms", m.for_ms, Range{0, kLongestMs});
    visit("process_sets", m.process_sets);
    visit("operations", m.operations, AtMost{kMostOperations});
    visit("last", m.last, Line{kMostName});
    visit("last_ended_ms", m.last_ended_ms, Range{0, kLongestMs});
  }
  std::string contradiction() const;
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
  static void fields(auto& visit, auto& m) {
    visit("rank", m.rank);
    visit("pid", m.pid, Range{0, kLargestPid});
    visit("leader", m.leader);
    visit("program", m.program, Line{kMostName});
    visit("state", m.state, Line{kMostName});
    visit("cpu_ms", m.cpu_ms, Range{0, kLongestMs});
    visit("threads", m.threads, Range{0, kLargestPid});
    visit("stacks", m.stacks, Blocks{kMostStacks});
    visit("standing", m.standing);
  }
  friend bool operator==(const ProcessStacks&, const ProcessStacks&) = default;
};
struct StackReport {
  static constexpr MessageRule kRule{FrameType::kStacks, "stack report",
                                     Longest{kLargestStackReport}, Answers{FrameType::kDump}};
  std::vector<ProcessStacks> processes;
  static void fields(auto& visit, auto& m) {
    visit("processes", m.processes, AtMost{kMostProcesses});
  }
  friend bool operator==(const StackReport&, const StackReport&) = default;
};

// What a rank has done so far, and what its processes use.
struct RankSample {
  int rank = 0;
  RankCounters counters;
  std::string last_line;  // of its output; empty: none
  std::int64_t cpu_ms = 0;
  std::int64_t rss_bytes = 0;
  static void fields(auto& visit, auto& m) {
    visit("rank", m.rank);
    visit("counters", m.counters);
    visit("last_line", m.last_line, Line{kMostLastLine});
    visit("cpu_ms", m.cpu_ms, Range{0, kLongestMs});
    visit("rss_bytes", m.rss_bytes, Range{0, kMostBytes});
  }
  friend bool operator==(const RankSample&, const RankSample&) = default;
};
// Of the ranks of the host that live.
struct RankSamples {
  static constexpr MessageRule kRule{FrameType::kSamples, "samples", Answers{FrameType::kSample}};
  std::vector<RankSample> ranks;
  static void fields(auto& visit, auto& m) { visit("ranks", m.ranks); }
  friend bool operator==(const RankSamples&, const RankSamples&) = default;
};

// A fault that the driver of a host's GPU has written to the kernel's log while the job ran.
struct GpuFault {
  static constexpr MessageRule kRule{FrameType::kGpuFault, "GPU fault", Longest{4 * 1024},
                                     After{FrameType::kOrder}, Times{kMostGpuFaults}};
  std::string device;  // "0000:3b:00"
  int xid = 0;
  int rank = -1;         // whose process it was; -1: of none of ours, or not known
  std::int64_t pid = 0;  // as the driver says; 0: it does not
  std::string program;
  std::string text;  // the driver's own words
  static void fields(auto& visit, auto& m) {
    visit("device", m.device, Line{kMostName});
    visit("xid", m.xid, Range{0, 9'999});
    visit("rank", m.rank, Range{-1, kLargestPid});
    visit("pid", m.pid, Range{0, kLargestPid});
    visit("program", m.program, Line{kMostName});
    visit("text", m.text, Line{1024});
  }
  friend bool operator==(const GpuFault&, const GpuFault&) = default;
};

// The result of a KeepDelivery or a FetchDelivery.
struct DeliveryReport {
  static constexpr MessageRule kRule{FrameType::kDelivered, "delivery report", Longest{8 * 1024},
                                     Answers{FrameType::kKeep, FrameType::kFetch}};
  std::string id;
  bool here = false;                  // whole and unpacked; else the launcher has to send it
  int port = 0;                       // where it is served; 0: nowhere
  std::vector<std::string> refusals;  // why each of the first sources was of no use, in their order
  static void fields(auto& visit, auto& m) {
    visit("id", m.id, Line{kMostName});
    visit("here", m.here);
    visit("port", m.port, Range{0, kLargestPort});
    visit("refusals", m.refusals, AtMost{kMostSources}, Line{kMostName});
  }
  std::string contradiction() const;
  friend bool operator==(const DeliveryReport&, const DeliveryReport&) = default;
};

// Which parts of an OfferTree are missing here.
struct TreeState {
  static constexpr MessageRule kRule{FrameType::kTreeState, "state of a folder",
                                     Answers{FrameType::kTree}};
  std::vector<std::string> missing;
  static void fields(auto& visit, auto& m) { visit("missing", m.missing, Line{kMostName}); }
  friend bool operator==(const TreeState&, const TreeState&) = default;
};

// Where it listens for an OpenRelay; 0: it cannot.
struct RelayPort {
  static constexpr MessageRule kRule{FrameType::kRelayPort, "port of the relay", Layout::kNumbers,
                                     After{FrameType::kRelay}, Times{1}};
  int port = 0;
  static void fields(auto& visit, auto& m) { visit("port", m.port, Range{0, kLargestPort}); }
};
// A connection has come to the relay.
struct RelayOpened {
  static constexpr MessageRule kRule{FrameType::kRelayOpen, "relayed connection", Layout::kNumbers,
                                     After{FrameType::kRelayPort}};
  std::uint32_t number = 0;
  static void fields(auto& visit, auto& m) { visit("number", m.number); }
};

// Of a job that was ended: nothing of it runs there any more, but its output is not all sent.
struct RanksGone {
  static constexpr MessageRule kRule{FrameType::kRanksGone, "end of the ranks", Layout::kNumbers,
                                     After{FrameType::kStarted}, Times{1}};
  static void fields(auto&, auto&) {}
};

// Its ranks have been stopped.
struct AgentSuspended {
  static constexpr MessageRule kRule{FrameType::kSuspend, "suspension", Layout::kNumbers,
                                     Answers{FrameType::kSuspend}};
  static void fields(auto&, auto&) {}
};

// For the launcher's log.
struct LogLine {
  static constexpr MessageRule kRule{FrameType::kLog, "log line", Longest{16 * 1024},
                                     Times{kMostLogLines}};
  int level = 0;  // 0 trace .. 4 error
  std::string message;
  static void fields(auto& visit, auto& m) {
    visit("level", m.level, Range{0, 4});
    visit("message", m.message, Line{kMostText});
  }
  friend bool operator==(const LogLine&, const LogLine&) = default;
};

// Why a host cannot go on. Written by an agent or, instead of it, by a transport; a host may find
// out late, so it may come at any time. The launcher knows the host by the link that it came
// through; a host's claim about another host does not count.
struct Failure {
  static constexpr MessageRule kRule{FrameType::kFailure, "failure", Longest{64 * 1024},
                                     BeforeHello{}};
  std::string code;          // "E_SSH_AUTH", "E_CWD", ...: launcher/failures/failure_code.h
  std::string message;       // one sentence: what is wrong, without the host
  std::string advice;        // what to do; may be empty
  std::string subject = {};  // a transport's name for the host: "host node3 (10.0.0.3:22)"
  static void fields(auto& visit, auto& m) {
    visit("code", m.code, Line{kMostName});
    visit("message", m.message, Block{kMostFailureText});
    visit("advice", m.advice, Block{kMostText});
    visit("subject", m.subject, Line{kMostName});
  }
  std::string contradiction() const;
  friend bool operator==(const Failure&, const Failure&) = default;
};

// The last message of an agent.
struct Goodbye {
  static constexpr MessageRule kRule{FrameType::kGoodbye, "goodbye", Longest{4 * 1024}};
  int survivors = 0;  // processes of the job that could not be ended
  std::vector<std::int64_t> survivor_pids;
  int killed = 0;        // stray processes that had to be killed
  bool forking = false;  // the survivors fork and end: these are the ones that were seen last
  bool stays = false;    // the agent ends when kLeave comes
  static void fields(auto& visit, auto& m) {
    const auto most = static_cast<std::size_t>(std::max(m.survivors, 0));
    visit("survivors", m.survivors, Range{0, kLargestPid});
    visit("survivor_pids", m.survivor_pids, AtMost{std::min(kMostSurvivorPids, most)},
          Range{1, kLargestPid});
    visit("killed", m.killed, Range{0, kLargestPid});
    visit("forking", m.forking);
    visit("stays", m.stays);
  }
  friend bool operator==(const Goodbye&, const Goodbye&) = default;
};

// Without Heartbeat: received bytes say as much.
using AgentMessage =
    std::variant<Hello, ProbeResult, AgentReady, Started, RankOutput, RankOutputEnd, RankExit,
                 InputTaken, RankProgress, StackReport, RankSamples, GpuFault, DeliveryReport,
                 TreeState, RelayPort, RelayOpened, RelayedBytes, RelayedBytesTaken, RanksGone,
                 AgentSuspended, LogLine, Failure, Goodbye>;

// --- from the launcher ---------------------------------------------------------------------------

// An agent trusts its launcher, which started it: these have a turn, and few limits.

// Which of these addresses really lead to the host that holds the nonce?
struct ProbeTarget {
  int host_index = 0;
  std::vector<std::string> addresses;
  int port = 0;
  std::string nonce;
  static void fields(auto& visit, auto& m) {
    visit("host_index", m.host_index);
    visit("addresses", m.addresses);
    visit("port", m.port);
    visit("nonce", m.nonce);
  }
  friend bool operator==(const ProbeTarget&, const ProbeTarget&) = default;
};
struct Probe {
  static constexpr MessageRule kRule{FrameType::kProbe, "probe",
                                     AnsweredBy{FrameType::kProbeResult},
                                     OutOfTurn{"a second probe before the first was answered"}};
  std::vector<ProbeTarget> targets;
  int timeout_ms = 2000;
  static void fields(auto& visit, auto& m) {
    visit("targets", m.targets);
    visit("timeout_ms", m.timeout_ms);
  }
  friend bool operator==(const Probe&, const Probe&) = default;
};

struct BundleFile {
  std::string path;  // relative, no "..", '/'-separated
  std::uint64_t size_bytes = 0;
  int mode = 0644;          // with S_IFDIR: a folder, which is listed if nothing is in it
  std::string link_target;  // not empty: a symbolic link inside the bundle
  static void fields(auto& visit, auto& m) {
    visit("path", m.path);
    visit("size_bytes", m.size_bytes);
    visit("mode", m.mode);
    visit("link_target", m.link_target);
  }
  friend bool operator==(const BundleFile&, const BundleFile&) = default;
};
// One part of a bundle. Its contents follow in the order of its files, as one zstd frame.
struct BundlePart {
  static constexpr std::string_view kName = "bundle part";
  std::string hash;           // of paths, modes and contents: what it is called everywhere
  std::string packed_sha256;  // of the frame, lower-case hex
  std::vector<BundleFile> files;
  static void fields(auto& visit, auto& m) {
    visit("hash", m.hash);
    visit("packed_sha256", m.packed_sha256);
    visit("files", m.files);
  }
  friend bool operator==(const BundlePart&, const BundlePart&) = default;
};
// The contents of a bundle on a host.
struct BundleManifest {
  static constexpr std::string_view kName = "bundle manifest";
  std::vector<BundlePart> parts;
  static void fields(auto& visit, auto& m) { visit("parts", m.parts); }
  friend bool operator==(const BundleManifest&, const BundleManifest&) = default;
};
struct ShipFile {
  static constexpr std::string_view kName = "ship file";
  std::string name;  // relative to the job's working directory
  std::uint64_t size_bytes = 0;
  int mode = 0644;
  std::string packed_sha256;  // of the zstd frame that follows
  static void fields(auto& visit, auto& m) {
    visit("name", m.name);
    visit("size_bytes", m.size_bytes);
    visit("mode", m.mode);
    visit("packed_sha256", m.packed_sha256);
  }
  friend bool operator==(const ShipFile&, const ShipFile&) = default;
};
// One frame of a bundle or a shipped file, for Staging: header, data or end.
struct DeliveryFrame {
  static constexpr MessageRule kRule{
      FrameType::kPart,          "delivery",
      UpTo{FrameType::kDataEnd}, Layout::kFrames,
      Before{FrameType::kOrder}, OutOfTurn{"a delivery after the order"}};
  Frame frame;
  static void fields(auto&, auto&) {}
};

// Folders of the user's for the job, in parts that are called by their hashes like those of a
// bundle: those that are copied for the ranks, and a Python environment, which is used where the
// host keeps it. The host answers which parts it lacks, and is sent these alone.
struct OfferTree {
  static constexpr MessageRule kRule{FrameType::kTree, "offer of a folder",
                                     Before{FrameType::kOrder}, Times{1},
                                     OutOfTurn{"a second folder, or one after the order"}};
  std::vector<std::string> parts;
  std::vector<std::string> environment;
  // The environment's Python, which is the host's own: /usr/bin/python3.11. Empty: it has one.
  std::string interpreter;
  static void fields(auto& visit, auto& m) {
    visit("parts", m.parts);
    visit("environment", m.environment);
    visit("interpreter", m.interpreter);
  }
  friend bool operator==(const OfferTree&, const OfferTree&) = default;
};

// A delivery carries one part or file to a host: its header, data and end, as frames. Where hosts
// pass deliveries on, its id is the SHA-256 of these frames, in lower-case hex. The delivery whose
// frames follow must be kept, and served to peers that prove to have the key.
struct KeepDelivery {
  static constexpr MessageRule kRule{FrameType::kKeep, "order to keep a delivery",
                                     Before{FrameType::kOrder},
                                     OutOfTurn{"a delivery after the order"}};
  std::string id;
  std::string key;  // the job's; a secret
  static void fields(auto& visit, auto& m) {
    visit("id", m.id);
    visit("key", m.key);
  }
  friend bool operator==(const KeepDelivery&, const KeepDelivery&) = default;
};
// A host that serves a delivery.
struct DeliverySource {
  std::string host;                    // its name, for people
  std::vector<std::string> addresses;  // numeric, the most promising first
  int port = 0;
  static void fields(auto& visit, auto& m) {
    visit("host", m.host);
    visit("addresses", m.addresses);
    visit("port", m.port);
  }
  friend bool operator==(const DeliverySource&, const DeliverySource&) = default;
};
// The delivery is to be had from one of these, tried one after the other; then to be kept and
// served as well.
struct FetchDelivery {
  static constexpr MessageRule kRule{FrameType::kFetch, "order to fetch a delivery",
                                     Before{FrameType::kOrder},
                                     OutOfTurn{"a delivery after the order"}};
  std::string id;
  std::uint64_t size_bytes = 0;
  std::string key;
  std::vector<DeliverySource> sources;
  int timeout_ms = 10'000;  // for each source
  static void fields(auto& visit, auto& m) {
    visit("id", m.id);
    visit("size_bytes", m.size_bytes);
    visit("key", m.key);
    visit("sources", m.sources);
    visit("timeout_ms", m.timeout_ms);
  }
  friend bool operator==(const FetchDelivery&, const FetchDelivery&) = default;
};
// Every host has this delivery: it is not kept any more.
struct ForgetDeliveries {
  static constexpr MessageRule kRule{FrameType::kForget, "order to forget a delivery",
                                     Layout::kNumbers};
  std::string id;  // empty: all of them
  static void fields(auto& visit, auto& m) { visit("id", m.id); }
};

// Connections to the rendezvous come to this address, and travel by the agent's stream.
struct OpenRelay {
  static constexpr MessageRule kRule{
      FrameType::kRelay, "order to relay",
      Layout::kNumbers,  Before{FrameType::kOrder},
      Times{1},          OutOfTurn{"a second relay, or one after the order"}};
  std::string address;
  static void fields(auto& visit, auto& m) { visit("address", m.address); }
};

// kTerminal: standard output and standard error are the terminal, too.
enum class StdinSource : std::uint8_t { kNull = 0, kStream = 1, kTerminal = 2 };
constexpr StdinSource last_of(StdinSource) { return StdinSource::kTerminal; }

struct RankOrder {
  int rank = 0;
  int local_rank = 0;
  std::vector<std::pair<std::string, std::string>> environment;  // on top of HostOrder's
  StdinSource stdin_source = StdinSource::kNull;
  int rows = 0;  // of a terminal
  int columns = 0;
  static void fields(auto& visit, auto& m) {
    visit("rank", m.rank);
    visit("local_rank", m.local_rank);
    visit("environment", m.environment);
    visit("stdin_source", m.stdin_source);
    visit("rows", m.rows, Range{0, kMostCharacters});
    visit("columns", m.columns, Range{0, kMostCharacters});
  }
  friend bool operator==(const RankOrder&, const RankOrder&) = default;
};

// A host of the job and its ranks, for the PMI server.
struct PmiHost {
  std::string name;
  std::vector<int> ranks;
  static void fields(auto& visit, auto& m) {
    visit("name", m.name);
    visit("ranks", m.ranks);
  }
  friend bool operator==(const PmiHost&, const PmiHost&) = default;
};

// A program of a job that has several; it is that of the ranks from `first_rank` on.
struct ProgramOrder {
  int first_rank = 0;
  std::vector<std::string> argv;
  static void fields(auto& visit, auto& m) {
    visit("first_rank", m.first_rank);
    visit("argv", m.argv);
  }
  friend bool operator==(const ProgramOrder&, const ProgramOrder&) = default;
};

// Validate and prepare, start nothing; answered by AgentReady or Failure.
struct HostOrder {
  // The largest host has many ranks, each with a few dozen words.
  static constexpr MessageRule kRule{FrameType::kOrder, "host order", MostItems{8 * kMaxCborItems},
                                     Times{1}, OutOfTurn{"a second order"}};
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
  static void fields(auto& visit, auto& m) {
    visit("job_id", m.job_id);
    visit("working_directory", m.working_directory);
    visit("ship_directory", m.ship_directory);
    visit("argv", m.argv);
    visit("more_programs", m.more_programs);
    visit("environment", m.environment);
    visit("own_variables", m.own_variables);
    visit("prepend_paths", m.prepend_paths);
    visit("ranks", m.ranks);
    visit("grace_ms", m.grace_ms);
    visit("lease_ms", m.lease_ms);
    visit("output_window_bytes", m.output_window_bytes);
    visit("bind", m.bind);
    visit("gpus_per_rank", m.gpus_per_rank);
    visit("limit_threads", m.limit_threads);
    visit("pmi", m.pmi);
    visit("pmi_hosts", m.pmi_hosts);
    visit("pmi_host", m.pmi_host);
  }
  friend bool operator==(const HostOrder&, const HostOrder&) = default;
};

struct StartRanks {
  static constexpr MessageRule kRule{FrameType::kStart, "start",
                                     Layout::kNumbers,  After{FrameType::kOrder},
                                     Times{1},          OutOfTurn{"a start without an order"}};
  static void fields(auto&, auto&) {}
};
// TERM, then KILL after `grace`. Another signal comes before that, and gets as much time.
struct TerminateRanks {
  static constexpr MessageRule kRule{FrameType::kTerminate, "end of all ranks", Layout::kNumbers};
  Milliseconds grace{0};
  int signal = SIGTERM;
  static void fields(auto& visit, auto& m) {
    visit("grace", m.grace);
    visit("signal", m.signal, Range{1, kLargestSignal}, MayBeMissing{});
  }
};
// That rank alone.
struct TerminateRank {
  static constexpr MessageRule kRule{FrameType::kEndRank, "end of one rank", Layout::kNumbers};
  int rank = 0;
  Milliseconds grace{0};
  static void fields(auto& visit, auto& m) {
    visit("rank", m.rank);
    visit("grace", m.grace);
  }
};
struct SignalRanks {
  static constexpr MessageRule kRule{FrameType::kSignal, "signal", Layout::kNumbers};
  int signal = 0;
  static void fields(auto& visit, auto& m) { visit("signal", m.signal, Range{1, kLargestSignal}); }
};
// That rank alone; its end stays its own.
struct SignalRank {
  static constexpr MessageRule kRule{FrameType::kSignalRank, "signal to one rank",
                                     Layout::kNumbers};
  int rank = 0;
  int signal = 0;
  static void fields(auto& visit, auto& m) {
    visit("rank", m.rank);
    visit("signal", m.signal, Range{1, kLargestSignal});
  }
};
// The launcher stops (Ctrl-Z): the ranks stop, and the lease is 24 hours.
struct SuspendRanks {
  static constexpr MessageRule kRule{FrameType::kSuspend, "order to suspend", Layout::kNumbers};
  static void fields(auto&, auto&) {}
};
struct ResumeRanks {
  static constexpr MessageRule kRule{FrameType::kResume, "order to resume", Layout::kNumbers};
  static void fields(auto&, auto&) {}
};
// What have the ranks done so far? Answered by RankSamples.
struct SampleRanks {
  static constexpr MessageRule kRule{FrameType::kSample, "request of samples", Layout::kNumbers};
  static void fields(auto&, auto&) {}
};
// What are the ranks doing? Answered by a StackReport.
struct DumpStacks {
  static constexpr MessageRule kRule{FrameType::kDump, "request of stacks", Layout::kNumbers};
  Milliseconds timeout{0};
  static void fields(auto& visit, auto& m) { visit("timeout", m.timeout); }
};
// Output is consumed: flow control.
struct OutputTaken {
  static constexpr MessageRule kRule{FrameType::kOutputAck, "output acknowledgement",
                                     Layout::kNumbers};
  std::size_t bytes = 0;
  static void fields(auto& visit, auto& m) { visit("bytes", m.bytes); }
};
// For the standard input of a rank.
struct RankInput {
  static constexpr MessageRule kRule{FrameType::kInput, "input", Layout::kNumbers};
  int rank = 0;
  Tail bytes = {};
  static void fields(auto& visit, auto& m) {
    visit("rank", m.rank);
    visit("bytes", m.bytes);
  }
};
struct RankInputEnd {
  static constexpr MessageRule kRule{FrameType::kInputEnd, "end of input", Layout::kNumbers};
  int rank = 0;
  static void fields(auto& visit, auto& m) { visit("rank", m.rank); }
};
// The terminal of a rank has another size.
struct ResizeTerminal {
  static constexpr MessageRule kRule{FrameType::kResize, "size of a terminal", Layout::kNumbers};
  int rank = 0;
  int rows = 0;
  int columns = 0;
  static void fields(auto& visit, auto& m) {
    visit("rank", m.rank);
    visit("rows", m.rows, Range{0, kMostCharacters});
    visit("columns", m.columns, Range{0, kMostCharacters});
  }
};
// The goodbye has come. The launcher's last message.
struct LeaveHost {
  static constexpr MessageRule kRule{FrameType::kLeave, "order to leave", Layout::kNumbers,
                                     After{FrameType::kGoodbye}};
  static void fields(auto&, auto&) {}
};

using LauncherMessage =
    std::variant<Heartbeat, DeliveryFrame, OfferTree, KeepDelivery, FetchDelivery, ForgetDeliveries,
                 Probe, HostOrder, StartRanks, TerminateRanks, TerminateRank, SignalRanks,
                 SignalRank, SuspendRanks, ResumeRanks, DumpStacks, SampleRanks, OutputTaken,
                 RankInput, RankInputEnd, ResizeTerminal, OpenRelay, RelayedBytes,
                 RelayedBytesTaken, LeaveHost>;

// What a launcher says, if its turn has come. The Error says what was received instead: "a second
// order".
Result<LauncherMessage> read_launcher_frame(Frame frame, const Turns& turns);

// --- between an agent and the PMI server that it starts next to its ranks ------------------------

// In a pipe. Each follows its length, 4 bytes, little-endian.
struct PmiJob {
  static constexpr std::string_view kName = "PMI job";
  std::string job_id;
  std::vector<PmiHost> hosts;
  int own_host = 0;
  std::string directory;           // for its files and the ranks'; removed by the agent
  std::vector<int> next_programs;  // the first rank of each program but the first one
  static void fields(auto& visit, auto& m) {
    visit("job_id", m.job_id);
    visit("hosts", m.hosts);
    visit("own_host", m.own_host);
    visit("directory", m.directory);
    visit("next_programs", m.next_programs);
  }
  friend bool operator==(const PmiJob&, const PmiJob&) = default;
};
// PMIX_APPNUM, PMI's appnum: the place of the rank's program among those of the job, from 0.
int program_number(const PmiJob& job, int rank);

struct PmiReply {
  static constexpr std::string_view kName = "PMI reply";
  std::string error;  // why there is no server; empty: there is one
  // Each rank of this host needs this to find it.
  std::vector<std::pair<int, std::vector<std::pair<std::string, std::string>>>> environment;
  // Where each rank is connected to, by a descriptor that it inherits (PMI_FD): a name in the
  // abstract space of Unix sockets. Empty: ranks connect by themselves.
  std::string socket;
  static void fields(auto& visit, auto& m) {
    visit("error", m.error);
    visit("environment", m.environment);
    visit("socket", m.socket);
  }
  friend bool operator==(const PmiReply&, const PmiReply&) = default;
};

}  // namespace hora::launcher
