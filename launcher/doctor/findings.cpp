// SPDX-License-Identifier: Apache-2.0
#include "launcher/doctor/findings.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "launcher/failures/failure_code.h"
#include "launcher/failures/host_failure.h"
#include "rendezvous/base/text.h"

namespace hora::launcher::doctor {

// The rules for one host, and the merging of all findings. A fact that a host did not report never
// leads to a finding.

namespace {

constexpr std::int64_t kMiB = 1 << 20;
constexpr std::int64_t kGiB = 1 << 30;
// What NCCL and our own shared memory may take.
constexpr std::int64_t kShmPerRank = 64 * kMiB;
// Runtime, agent, and a job's files.
constexpr std::int64_t kLeastCache = 256 * kMiB;
constexpr std::int64_t kLeastMemory = kGiB;
constexpr std::int64_t kLeastFiles = 1024;
constexpr std::int64_t kLeastStack = 2 * kMiB;
constexpr std::int64_t kManyZombies = 10;
constexpr double kClockWarning_ms = 1'000;

std::string size_text(std::int64_t bytes) {
  char text[32];
  const double value = static_cast<double>(bytes);
  if (bytes >= kGiB) {
    std::snprintf(text, sizeof text, "%.1f GiB", value / static_cast<double>(kGiB));
  } else {
    std::snprintf(text, sizeof text, "%.0f MiB", value / static_cast<double>(kMiB));
  }
  return text;
}

// A missing number is -1 by default, which every rule treats as unknown.
std::int64_t number(const Json& value, std::int64_t otherwise = -1) {
  if (value.is_number_float() && std::abs(value.get<double>()) > 9e18) return otherwise;
  return value.is_number() ? value.get<std::int64_t>() : otherwise;
}

// Collects the findings of one host.
class HostCheck {
 public:
  HostCheck(const HostExamination& host, const Examination& examination, std::vector<Finding>& out)
      : host_(host), examination_(examination), out_(out) {}

  void run() {
    // Without an answer, no rule applies.
    if (host_.failure) return unreachable();
    for (const std::string& what : host_.unanswered) {
      add(Severity::kError, "D_SILENT", "did not answer in time: " + what,
          "a host this slow, or a program that hangs there, blocks a job as well",
          "check its load and its disks; run horarun doctor for this host alone");
    }
    c_library();
    if (!host_.machine.is_null()) machine();
    if (!host_.software.is_null()) software();
    if (host_.leftovers.is_array() && !host_.leftovers.empty()) leftovers();
    zombies();
    clock();
  }

 private:
  void add(Severity severity, std::string code, std::string what, std::string why,
           std::string fix) {
    out_.push_back({severity,
                    std::move(code),
                    {host_.name},
                    std::move(what),
                    std::move(why),
                    std::move(fix),
                    {}});
  }

  const Json& fact(std::string_view path) const { return member(host_.machine, path); }

  void unreachable() {
    const FailureClass* row = find_failure_class(host_.failure->code);
    const std::string advice = !host_.failure->advice.empty() ? host_.failure->advice
                               : row                          ? std::string(row->fix)
                                                              : "";
    add(Severity::kError, host_.failure->code, host_.failure->message,
        row ? std::string(row->cause) : "no job can run there", with_name(advice));
  }

  // Advice of the table of failures stands for any host.
  std::string with_name(std::string advice) const {
    constexpr std::string_view kName = "NAME";
    for (std::size_t at = advice.find(kName); at != std::string::npos;
         at = advice.find(kName, at + host_.name.size())) {
      advice.replace(at, kName.size(), host_.name);
    }
    return advice;
  }

  void machine() {
    processors();
    memory();
    limits();
    disks();
  }

  void processors() {
    const std::int64_t cpus = number(fact("cpu.usable"), 0);
    const std::int64_t gpus = number(fact("gpus.devices"), 0);
    // A container's CPU quota does not show in the affinity mask, so libraries do not notice it.
    const Json& quota = fact("cgroup.cpus");
    if (quota.is_number() && quota.get<double>() > 0 &&
        quota.get<double>() < static_cast<double>(cpus)) {
      char text[96];
      std::snprintf(text, sizeof text, "its cgroup allows %.1f of %lld CPUs", quota.get<double>(),
                    static_cast<long long>(cpus));
      add(Severity::kWarning, "D_CPU_QUOTA", text,
          "libraries create threads for all CPUs, and the kernel throttles them in every period",
          "raise the CPU limit of the container, or set OMP_NUM_THREADS");
    }
    if (host_.slots > cpus && cpus > 0) {
      add(Severity::kWarning, "D_SLOTS_CPUS",
          counted(host_.slots, "slot") + " on " + counted(cpus, "usable CPU"),
          "ranks that share a CPU wait for each other in every collective",
          "give the host at most " + counted(cpus, "slot") + ": -H " + host_.name + ":" +
              std::to_string(cpus));
    }
    if (gpus > 0 && host_.slots > gpus) {
      add(Severity::kWarning, "D_SLOTS_GPUS",
          counted(host_.slots, "slot") + " on " + counted(gpus, "GPU"),
          "two ranks on one GPU share its memory, and NCCL refuses two ranks on one device",
          "give the host at most " + counted(gpus, "slot") + ", or --slots-per-host auto");
    }
    const Json& load = fact("load");
    // Half as much again as the CPUs can do, and one for chance.
    if (load.is_number() && cpus > 0 && load.get<double>() > 1.5 * static_cast<double>(cpus) + 1) {
      char text[96];
      std::snprintf(text, sizeof text, "a load of %.1f on %lld CPUs", load.get<double>(),
                    static_cast<long long>(cpus));
      add(Severity::kNote, "D_LOAD", text,
          "other programs use the host; its ranks will be the slow ones",
          "check it with top, or leave the host out");
    }
  }

  void memory() {
    const std::int64_t available = number(fact("memory.available_bytes"));
    if (available >= 0 && available < kLeastMemory) {
      add(Severity::kWarning, "D_MEMORY",
          "only " + size_text(available) + " of memory is available",
          "the kernel kills a process when memory runs out",
          "stop what uses it: ps aux --sort=-rss");
    }
    const std::int64_t limit = number(fact("cgroup.memory_max"));
    const std::int64_t total = number(fact("memory.total_bytes"));
    // A limit close to all memory is none.
    if (limit > 0 && total > 0 && limit < total / 2) {
      add(Severity::kNote, "D_MEMORY_LIMIT",
          "its cgroup allows " + size_text(limit) + " of " + size_text(total) + " memory",
          "beyond that the kernel kills a rank, no matter how much memory the machine has left",
          "raise the memory limit of the container or session");
    }
    const std::int64_t shm = number(fact("shm.free_bytes"));
    // The need grows with the ranks of the host.
    const std::int64_t wanted = kShmPerRank * std::max(host_.slots, 1);
    if (shm >= 0 && shm < wanted) {
      add(Severity::kWarning, "D_SHM",
          "/dev/shm has " + size_text(shm) + " free of " +
              size_text(number(fact("shm.total_bytes"))),
          "the ranks of a host exchange data there; when it is full they fail with SIGBUS or 'No "
          "space left on device' (NCCL: 'unhandled system error')",
          "mount it larger (docker run --shm-size=1g), or remove old files: ls -l /dev/shm");
    }
  }

  void limits() {
    // The agent raises the soft limit itself, so the hard one counts.
    const std::int64_t files = number(fact("limits.nofile.hard"));
    if (files >= 0 && files < kLeastFiles) {
      add(Severity::kWarning, "D_NOFILE",
          "at most " + std::to_string(files) + " open files (ulimit -n)",
          "a rank needs one per peer, and data loaders many more",
          "raise nofile in /etc/security/limits.conf there");
    }
    const std::int64_t processes = number(fact("limits.nproc.soft"));
    if (processes >= 0 && processes < 1024) {
      add(Severity::kWarning, "D_NPROC",
          "at most " + std::to_string(processes) + " processes and threads (ulimit -u)",
          "frameworks create threads for every CPU; beyond the limit that fails",
          "raise nproc in /etc/security/limits.conf there");
    }
    const std::int64_t stack = number(fact("limits.stack.soft"));
    if (stack >= 0 && stack < kLeastStack) {
      add(Severity::kWarning, "D_STACK",
          "a stack of at most " + std::to_string(stack / 1024) + " KiB (ulimit -s)",
          "threads get a stack of that size, and libraries overflow it: SIGSEGV",
          "raise stack in /etc/security/limits.conf there; 8192 KiB are usual");
    }
    // Only InfiniBand needs locked memory.
    const std::int64_t locked = number(fact("limits.memlock.soft"));
    if (number(fact("infiniband_devices"), 0) > 0 && locked >= 0 && locked < kGiB) {
      add(Severity::kError, "D_MEMLOCK",
          "InfiniBand devices, and only " + size_text(locked) +
              " of memory may be locked (ulimit -l)",
          "queues and buffers of the adapter are locked memory; creating them fails",
          "memlock unlimited in /etc/security/limits.conf, or --ulimit memlock=-1 for a container");
    }
    const std::int64_t pids = number(fact("cgroup.pids_max"));
    if (pids >= 0 && pids < 512) {
      add(Severity::kWarning, "D_PIDS",
          "its cgroup allows " + std::to_string(pids) + " processes and threads",
          "frameworks create threads for every CPU; beyond the limit that fails",
          "raise the pids limit of the container");
    }
  }

  void disks() {
    const Json& cache = fact("cache");
    const std::string path = text_in(cache, "path", "the cache");
    const std::int64_t space = number(member(cache, "free_bytes"));
    if (space >= 0 && space < kLeastCache) {
      add(Severity::kWarning, "D_CACHE_SPACE", size_text(space) + " free for the cache, " + path,
          "the runtime is cached there; without space it is sent again, or the start fails",
          "free some space; horarun cache clean -H " + host_.name);
    }
    // A disk may have space and no inodes.
    if (number(member(cache, "free_inodes")) == 0) {
      add(Severity::kError, "D_CACHE_INODES",
          "no file can be created on the file system of " + path,
          "it has run out of inodes, even if it has free space",
          "remove many small files there: df -i");
    }
    const std::int64_t tmp = number(fact("tmp.free_bytes"));
    if (tmp >= 0 && tmp < 64 * kMiB) {
      add(Severity::kWarning, "D_TMP_SPACE", size_text(tmp) + " free in /tmp",
          "Python, compilers and frameworks write there", "free some space: du -xh /tmp | sort -h");
    }
  }

  void software() {
    const Json& python = member(host_.software, "python");
    const Json& error = member(python, "error");
    if (error.is_string()) {
      add(Severity::kWarning, "D_PYTHON", error.get<std::string>(),
          "Python programs cannot be started there under that name",
          "install it, or give the interpreter's path, which every host must have");
    }
    const Json& imports = member(python, "imports");
    for (const auto& [name, result] : imports.items()) {
      const Json& failed = member(result, "error");
      if (!failed.is_string()) continue;
      add(Severity::kError, "D_IMPORT", name + " does not work: " + failed.get<std::string>(),
          "every rank on this host will fail in the same way",
          "repair the installation there: python3 -c 'import " + name + "'");
    }
    gpus();
  }

  void c_library() {
    if (!host_.hello) return;
    const auto why = why_runtime_does_not_fit(host_.hello->c_library,
                                              examination_.least_glibc_for(*host_.hello));
    if (!why) return;
    add(Severity::kError, "D_GLIBC", why->message, "horarun starts no rank on this host",
        why->advice);
  }

  void gpus() {
    const Json& gpus = member(host_.software, "nvidia");
    if (!gpus.is_array() || gpus.empty()) return;
    std::int64_t held = 0;
    for (const Json& gpu : gpus) {
      held += std::max<std::int64_t>(number(member(gpu, "used_mib")), 0);
      if (number(member(gpu, "ecc_errors"), 0) > 0) {
        add(Severity::kError, "D_GPU_ECC",
            "a GPU has " + std::to_string(number(member(gpu, "ecc_errors"))) +
                " uncorrected memory errors",
            "results are wrong or the process is killed (Xid 48, 63, 94)",
            "drain the host and reset or replace the GPU: nvidia-smi -q -d ECC");
      }
    }
    const std::int64_t users = number(member(host_.software, "gpu_processes"), 0);
    if (users > 0) {
      add(Severity::kNote, "D_GPU_BUSY",
          counted(users, "process") + (users == 1 ? " uses" : " use") + " the GPUs",
          "memory and time are shared with them",
          "find out whose they are: nvidia-smi; fuser -v /dev/nvidia*");
    }
    // A gigabyte per GPU: the driver itself holds some.
    if (number(member(host_.software, "gpu_processes")) == 0 &&
        held > 1024 * static_cast<std::int64_t>(gpus.size())) {
      add(Severity::kWarning, "D_GPU_MEMORY",
          std::to_string(held) + " MiB of GPU memory are in use and no process is shown",
          "a process of a dead job, or of another container, holds it",
          "find it: fuser -v /dev/nvidia*; end it");
    }
  }

  void leftovers() {
    std::string list;
    for (const Json& process : host_.leftovers) {
      if (!list.empty()) list += "; ";
      list += std::to_string(number(member(process, "pid"))) + " " + text_in(process, "command");
    }
    add(Severity::kWarning, "D_LEFTOVERS",
        std::to_string(host_.leftovers.size()) +
            " processes of jobs that have ended: " + list.substr(0, 300),
        "they hold memory, GPUs and ports", "end them: kill PID");
  }

  // A few zombies are normal for a moment.
  void zombies() {
    const std::int64_t count = number(fact("zombies.count"), 0);
    if (count < kManyZombies) return;
    const Json& parent = fact("zombies.parent");
    add(Severity::kWarning, "D_ZOMBIES",
        std::to_string(count) + " processes are zombies; " +
            std::to_string(number(member(parent, "children"), 0)) + " are children of " +
            std::to_string(number(member(parent, "pid"), 0)) + " " + text_in(parent, "command"),
        "each keeps its PID, and one that used a GPU may keep GPU memory",
        "restart their parent; a container needs a first process that reaps (docker run --init)");
  }

  void clock() {
    if (!host_.clock_offset_ms) return;
    const double offset = *host_.clock_offset_ms;
    // Subtract what the measurement itself may be wrong by.
    if (std::fabs(offset) - host_.clock_error_ms > kClockWarning_ms) {
      char text[96];
      std::snprintf(text, sizeof text, "its clock is %.1f s %s ours", std::fabs(offset) / 1000,
                    offset > 0 ? "ahead of" : "behind");
      add(Severity::kWarning, "D_CLOCK", text,
          "logs and timelines do not line up, and certificates may appear invalid",
          "synchronise it: timedatectl set-ntp true");
    }
  }

  const HostExamination& host_;
  const Examination& examination_;
  std::vector<Finding>& out_;
};

}  // namespace

// Facts come from the hosts, so any level may be missing or of another type.
const Json& member(const Json& value, std::string_view path) {
  static const Json none;
  const Json* at = &value;
  for (const std::string_view name : split(path, '.')) {
    if (!at->is_object()) return none;
    const auto found = at->find(std::string(name));
    if (found == at->end()) return none;
    at = &*found;
  }
  return *at;
}

std::string text_in(const Json& value, std::string_view path, std::string otherwise) {
  const Json& found = member(value, path);
  return found.is_string() ? found.get<std::string>() : std::move(otherwise);
}

std::vector<Finding> host_findings(const Examination& examination) {
  std::vector<Finding> out;
  for (const HostExamination& host : examination.hosts) {
    HostCheck(host, examination, out).run();
  }
  return out;
}

// Findings with the same words become one with several hosts.
std::vector<Finding> find_problems(const Examination& examination) {
  std::vector<Finding> merged;
  const auto take = [&merged](std::vector<Finding> found) {
    for (Finding& finding : found) {
      const auto same = std::find_if(merged.begin(), merged.end(), [&](const Finding& other) {
        return other.code == finding.code && other.what == finding.what && !finding.hosts.empty();
      });
      if (same == merged.end()) {
        merged.push_back(std::move(finding));
      } else {
        same->hosts.insert(same->hosts.end(), finding.hosts.begin(), finding.hosts.end());
      }
    }
  };
  take(host_findings(examination));
  take(selftest_findings(examination));
  take(set_findings(examination));
  take(known_problem_findings(examination));
  // Stable: within a severity, the order of the rules stays.
  std::stable_sort(merged.begin(), merged.end(),
                   [](const Finding& a, const Finding& b) { return a.severity > b.severity; });
  return merged;
}

}  // namespace hora::launcher::doctor
