// SPDX-License-Identifier: Apache-2.0
#include "launcher/failures/explain.h"

#include <signal.h>

#include <algorithm>

#include "launcher/failures/failure_code.h"
#include "launcher/failures/host_failure.h"
#include "launcher/text/text.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

// A finding itself has the figures of its host; this is what all findings of a code have in common.

namespace {

// clang-format off
constexpr FindingClass kClasses[] = {
    {"D_CACHE_INODES", "The file system of the cache has no inode left, so no file can be made there.", "Remove many small files there: df -i."},
    {"D_CACHE_SPACE", "Too little is free for the runtime in the cache directory.", "Free some space: horarun cache clean -H NAME."},
    {"D_CLOCK", "A host's clock is more than a second off: logs and timelines do not line up, certificates may appear invalid.", "Synchronise it: timedatectl set-ntp true."},
    {"D_CLOCKS", "The clocks of the hosts are more than 100 ms apart.", "Synchronise them: timedatectl set-ntp true."},
    {"D_CPU_QUOTA", "A cgroup allows fewer CPUs than the host shows; libraries create threads for all of them and are throttled.", "Raise the CPU limit of the container, or set OMP_NUM_THREADS."},
    {"D_DIFFERS", "The hosts differ in hardware or software, which makes ranks slow, or fail on some hosts only.", "Make the hosts alike, or leave the odd ones out."},
    {"D_GLIBC", "The C library of a host is too old for the runtime; horarun starts no rank there.", "Leave the host out, or run there in a container image with a newer system."},
    {"D_GPU_BUSY", "Other processes use the GPUs.", "Find out whose they are: nvidia-smi; fuser -v /dev/nvidia*."},
    {"D_GPU_ECC", "A GPU has uncorrected memory errors: results are wrong, or processes are killed.", "Drain the host and reset or replace the GPU: nvidia-smi -q -d ECC."},
    {"D_GPU_MEMORY", "GPU memory is in use and no process is shown that uses it.", "Find the process (fuser -v /dev/nvidia*) and end it."},
    {"D_IMPORT", "A framework cannot be imported, or fails in a tiny operation (--deep).", "Repair its installation on that host: python3 -c 'import NAME'."},
    {"D_LATENCY", "A link takes 8 times as long as the median of the hosts.", "Check switch, cable and driver of these hosts, or leave them out."},
    {"D_LEFTOVERS", "Processes of jobs that have ended still run; they hold memory, GPUs and ports.", "End them: kill PID."},
    {"D_LIBRARY", "libhora does not load or does not work; no job can run on this host.", "Read the message; it names the library or the step that failed."},
    {"D_LOAD", "Other programs use the host; its ranks will be the slow ones.", "Check it with top, or leave the host out."},
    {"D_LOOPBACK", "Two processes of one host cannot work together over TCP.", "Check the loopback interface and the firewall of the host."},
    {"D_MEMLOCK", "InfiniBand queues and buffers are locked memory, and the account may lock too little.", "Set memlock unlimited in /etc/security/limits.conf, or --ulimit memlock=-1 for a container."},
    {"D_MEMORY", "Little memory is available; the kernel kills a process when it runs out.", "Stop what uses it: ps aux --sort=-rss."},
    {"D_MEMORY_LIMIT", "A cgroup allows less than half of the host's memory; beyond that the kernel kills a rank.", "Raise the memory limit of the container or session."},
    {"D_MPI", "MPI is installed, but does not work.", "Read the message; without MPI, jobs use TCP."},
    {"D_MTU", "Packets as large as the interface allows do not pass between two hosts.", "Set the same MTU on both hosts and on what is between them."},
    {"D_NCCL", "NCCL is missing, does not load, or does not work on a GPU of the host.", "Read the message; HORA_NCCL chooses whose NCCL is used."},
    {"D_NCCL_INTERFACE", "NCCL_SOCKET_IFNAME selects no interface of a host, or lo, which leads to no other host.", "Unset it, or name an interface of every host; a list that excludes must exclude lo, too: ^docker0,lo."},
    {"D_NOFILE", "The account may open few files; a rank needs one for each peer, data loaders many more.", "Raise nofile in /etc/security/limits.conf."},
    {"D_NPROC", "The account may have few processes and threads.", "Raise nproc in /etc/security/limits.conf."},
    {"D_PIDS", "A cgroup allows few processes and threads.", "Raise the pids limit of the container."},
    {"D_PYTHON", "Python cannot be started on the host.", "Install it, or give the interpreter's path, which every host must have."},
    {"D_ROUTE", "A host cannot connect to another.", "Open TCP between the hosts, or name their common network by --network-interfaces."},
    {"D_SAME_HOST", "Two names of the list are one machine.", "Name it once, with all its slots."},
    {"D_SHARED_MEMORY", "Processes of one host cannot work together over shared memory.", "Check /dev/shm there: its size, its mount options, its permissions."},
    {"D_SHM", "/dev/shm is nearly full; when it is full, ranks fail with SIGBUS or 'No space left on device'.", "Mount it larger (docker run --shm-size=1g), or remove old files: ls -l /dev/shm."},
    {"D_SILENT", "A check got no answer in time; such a host blocks a job as well.", "Check its load and its disks; run horarun doctor for this host alone."},
    {"D_SLOTS_CPUS", "A host has more slots than usable CPUs; ranks that share a CPU wait for each other.", "Give it fewer slots: -H NAME:N."},
    {"D_SLOTS_GPUS", "A host has more slots than GPUs; NCCL refuses two ranks on one device.", "Give it fewer slots, or use --slots-per-host auto."},
    {"D_SLOW_LINK", "A link is 8 times slower than the median of the hosts.", "Check switch, cable and driver of these hosts, or leave them out."},
    {"D_STACK", "Threads get a small stack, which libraries overflow: SIGSEGV.", "Raise stack in /etc/security/limits.conf; 8192 KiB are usual."},
    {"D_TMP_SPACE", "Little is free in /tmp, where Python, compilers and frameworks write.", "Free some space: du -xh /tmp | sort -h."},
    {"D_WORLD", "A job of all hosts does not start: a host cannot reach the launcher, or did not join.", "Open TCP between the hosts and this machine, or name a network by --network-interfaces."},
    {"D_ZOMBIES", "Many processes have ended and their parent has not waited for them; they keep their PIDs, perhaps GPU memory.", "Restart their parent; a container needs a first process that reaps (docker run --init)."},
};
// clang-format on

}  // namespace

std::span<const FindingClass> finding_classes() { return kClasses; }

// NVIDIA's numbers for faults of a GPU, with what a person should do. The row decides between three
// kinds of advice: the program is at fault, the GPU or its host is, or the Xid merely follows from
// another. The meanings are from NVIDIA's catalogue (kXidCatalogue); a number without a row gets
// its address.

namespace {

constexpr std::string_view kProgram =
    "look at the program first: CUDA_LAUNCH_BLOCKING=1 or compute-sanitizer names the kernel; if "
    "other programs do it "
    "on this GPU only, test the GPU (dcgmi diag -r 3)";
constexpr std::string_view kReset =
    "take the host out of service, reset the GPU (nvidia-smi --gpu-reset) or restart the host; if "
    "it "
    "comes again, have the "
    "GPU tested (dcgmi diag -r 3) and replaced";
constexpr std::string_view kLink =
    "nvidia-smi nvlink -e shows which link; reset the GPUs or restart the host; if it comes again, "
    "have the board, its "
    "bridges or its fabric manager looked at";
constexpr std::string_view kDriver =
    "restart the host, or reload the driver; with a newer driver if it happens again; "
    "nvidia-bug-report.sh for NVIDIA";
constexpr std::string_view kOther =
    "it follows from another fault or from the end of a process: look for the first Xid in the "
    "kernel's log (dmesg)";

// clang-format off
constexpr XidClass kXidClasses[] = {
    {8, "the GPU stopped processing", kReset},
    {13, "an exception in the compute engine, mostly an illegal access or instruction of the program", kProgram},
    {31, "a memory page fault: the program used an address of the GPU that is not its own", kProgram},
    {32, "a damaged stream of commands to the GPU: the driver, the bus, or memory", kDriver},
    {38, "an error in the driver's firmware", kDriver},
    {43, "the GPU dropped the program's work because of a fault of the program; the GPU itself is well", kProgram},
    {44, "a fault while the GPU changed from one program to another", kReset},
    {45, "the program's work on the GPU was removed", kOther},
    {46, "the GPU stopped processing", kReset},
    {48, "an uncorrectable (double bit) error of the GPU's memory", kReset},
    {61, "a breakpoint in the GPU's internal controller", kReset},
    {62, "the GPU's internal controller halted", kReset},
    {63, "the GPU marked a bad part of its memory, to be left out from its next reset on",
     "the job may go on; reset the GPU (nvidia-smi --gpu-reset) when it is free"},
    {64, "the GPU could not mark a bad part of its memory", kReset},
    {69, "an exception in the compute engine: a class of commands that it does not have", kProgram},
    {74, "an NVLink failed", kLink},
    {79, "the GPU has fallen off the bus: the host cannot reach it any more",
     "power-cycle the host; if it happens again, check power supply, cooling, seating and the GPU"},
    {92, "many correctable errors of the GPU's memory", "have the GPU tested (dcgmi diag -r 3)"},
    {94, "an uncorrectable memory error that only this program suffered",
     "start the job again; reset the GPU (nvidia-smi --gpu-reset) when it is free"},
    {95, "an uncorrectable memory error that may have spoilt the work of every program on the GPU", kReset},
    {109, "the GPU did not change from one program to another in time", kReset},
    {119, "the GPU's system processor did not answer the driver (GSP RPC timeout)", kReset},
    {120, "the GPU's system processor failed (GSP error)", kReset},
    {121, "corrected errors on the link between CPU and GPU (C2C)",
     "the job may go on; reset the GPU when it is free if they come again"},
    {137, "an NVLink access to another GPU's memory was refused, mostly as the program there had failed before",
     "look at the rank that failed first, and at the other GPUs' Xids; this one is mostly the victim"},
    {140, "uncorrectable memory errors of the GPU", kReset},
    {143, "the GPU could not be initialized", kReset},
    {144, "an NVLink failed (SAW)", kLink},
    {145, "an NVLink failed (RLW)", kLink},
    {149, "an NVLink failed (NETIR)", kLink},
    {150, "an NVLink failed (MSE)", kLink},
    {154, "the driver says what the GPU needs to work again", "do what the message says"},
};
// clang-format on

}  // namespace

std::span<const XidClass> xid_classes() { return kXidClasses; }

const XidClass* find_xid(int code) {
  for (const XidClass& each : kXidClasses) {
    if (each.code == code) return &each;
  }
  return nullptr;
}

// The form of an argument shows its kind, so none needs an option of its own: numbers are exit
// codes, names of signals stand for 128 + N, and the rest are codes of the two tables.

namespace {

std::string explain_class(const FailureClass& row) {
  std::string out(row.code);
  out += ": " + std::string(row.title) + " (exit code " + std::to_string(row.exit_code) + ")\n\n";
  out += "Cause: " + std::string(row.cause) + "\n\nFix:   " + std::string(row.fix) + "\n";
  if (!row.proof.empty()) {
    out += "\nReproduce it: " + fill_command(row.proof, "ssh", Host{"HOST", "", {}}) + "\n";
  }
  return out;
}

std::string explain_finding(const FindingClass& row) {
  return std::string(row.code) + ", found by horarun doctor\n\nCause: " + std::string(row.meaning) +
         "\n\nFix:   " + std::string(row.fix) + "\n";
}

// The usual sender of a signal, where the number alone says too little.
std::string_view usual_sender(int signal) {
  switch (signal) {
    case SIGKILL:
      return ", often by the kernel's out-of-memory killer (dmesg on that host)";
    case SIGBUS:
      return ", often because /dev/shm is full";
    case SIGSEGV:
      return ": it used memory that is not its own";
    case SIGABRT:
      return ": it gave up by itself, mostly with a message on stderr";
    default:
      return "";
  }
}

std::string explain_exit_code(int code) {
  const std::string head = "exit code " + std::to_string(code) + ": ";
  for (const CodeMeaning& row : code_meanings()) {
    if (row.code == code) return head + std::string(row.meaning) + "\n";
  }
  // Shells report 128 + N for a process that signal N ended.
  if (code > kExitSignalBase && code <= kExitSignalBase + 64) {
    const int signal = code - kExitSignalBase;
    std::string text =
        head + "the rank that failed first was ended by signal " + std::to_string(signal);
    // Signals with a name of their own, not "signal 42".
    if (signal_number(signal_name(signal))) text += " (" + signal_name(signal) + ")";
    return text.append(usual_sender(signal)) + "\n";
  }
  return head + "the rank that failed first ended with this code; it is the program's own\n";
}

std::string list_all() {
  std::string out = "Exit codes:\n";
  for (const CodeMeaning& row : code_meanings()) {
    std::string code = std::to_string(row.code);
    code.resize(9, ' ');
    out += "  " + code + std::string(row.meaning) + "\n";
  }
  out += "  128+N    the rank that failed first was ended by signal N\n";
  out += "  other    the rank that failed first ended with this code\n\nClasses of failures:\n";
  for (const FailureClass& row : failure_classes()) {
    std::string code(row.code);
    code.resize(20, ' ');
    out += "  " + code + std::string(row.title) + "\n";
  }
  return out +
         "\n'horarun explain CODE' says more about one of them, and about findings of horarun "
         "doctor "
         "(D_SHM),\nsignals (SIGKILL) and faults of NVIDIA GPUs (xid79).\n";
}

// Accepts "79", " 79" and "=79", as people write it.
Result<std::string> explain_xid(std::string_view text) {
  const std::size_t digits = std::min(text.find_first_of("0123456789"), text.size());
  const auto code = parse_int<int>(text.substr(digits));
  const XidClass* row = code ? find_xid(*code) : nullptr;
  const std::string catalogue = "NVIDIA's catalogue: " + std::string(kXidCatalogue);
  if (row == nullptr) {
    return make_error(ErrorCode::kUsage, "explain: no Xid " + quote(text.substr(digits)) +
                                             " is known here; " + catalogue);
  }
  return "Xid " + std::to_string(row->code) + ": " + std::string(row->meaning) +
         "\n\nFix:   " + std::string(row->fix) + "\n\n" + catalogue + "\n";
}

// For a name that nothing has: the codes that begin with it, or the one that is most like it.
std::string advice_on(const std::string& name) {
  std::vector<std::string> family;
  for (std::string& code : explained_words()) {
    const bool begins =
        code.starts_with(name) || code.starts_with("E_" + name) || code.starts_with("D_" + name);
    if (begins) family.push_back(std::move(code));
  }
  constexpr std::size_t kFamily = 16;  // more would not help
  if (!family.empty() && family.size() <= kFamily) {
    const std::string_view which =
        family.size() == 1 ? "; did you mean " : "; did you mean one of ";
    return std::string(which) + join(family, ", ") + "?";
  }
  // The beginning that was left out would count as two mistakes.
  auto close = did_you_mean(name, explained_words());
  if (close.empty()) close = did_you_mean("E_" + name, explained_words());
  return close.empty() ? "; 'horarun explain' lists those of failures"
                       : "; did you mean " + close.front() + "?";
}

}  // namespace

std::vector<std::string> explained_words() {
  std::vector<std::string> words;
  for (const FailureClass& row : failure_classes()) words.emplace_back(row.code);
  for (const FindingClass& row : finding_classes()) words.emplace_back(row.code);
  for (const CodeMeaning& row : code_meanings()) words.push_back(std::to_string(row.code));
  // From 32 on they have no names.
  for (int signal = 1; signal < 32; ++signal) words.push_back(signal_name(signal));
  for (const XidClass& row : xid_classes()) words.push_back("xid" + std::to_string(row.code));
  return words;
}

Result<std::string> explain(std::string_view word) {
  if (word.empty()) return list_all();
  if (const auto number = parse_int<int>(word); number && *number >= 0 && *number <= 255) {
    return explain_exit_code(*number);
  }
  // People write "ssh-auth" as well as E_SSH_AUTH.
  const std::string name = constant_name(word);
  for (const std::string& signal : {name, "SIG" + name}) {
    if (const auto number = signal_number(signal)) {
      return explain_exit_code(kExitSignalBase + *number);
    }
  }
  if (name.starts_with("XID")) return explain_xid(std::string_view(name).substr(3));
  for (const std::string& code : {name, "E_" + name}) {
    if (const FailureClass* row = find_failure_class(code)) return explain_class(*row);
  }
  for (const FindingClass& row : finding_classes()) {
    if (row.code == name || row.code == "D_" + name) return explain_finding(row);
  }
  return make_error(ErrorCode::kUsage, "explain: unknown code " + quote(word) + advice_on(name));
}

}  // namespace hora::launcher
