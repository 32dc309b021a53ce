// SPDX-License-Identifier: Apache-2.0
#include "apps/doctor/facts.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <sys/timex.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <sstream>

#include "child.h"
#include "facts.h"
#include "hardware_text.h"
#include "launcher/plan/container.h"
#include "launcher/process/cgroup_limits.h"
#include "python_questions.h"
#include "rendezvous/base/text.h"

namespace hora::doctor {

// Facts about the machine from /proc, /sys and system calls. A fact that cannot be read is missing
// or neutral; it never ends the examination.

namespace {

// Counts the entries of a directory that begin with `prefix` and continue with a digit.
int count_numbered(const char* folder, std::string_view prefix) {
  const std::unique_ptr<DIR, int (*)(DIR*)> open(::opendir(folder), ::closedir);
  int count = 0;
  while (open != nullptr) {
    const dirent* item = ::readdir(open.get());
    if (item == nullptr) break;
    const std::string_view name(item->d_name);
    if (name.size() > prefix.size() && name.substr(0, prefix.size()) == prefix &&
        name[prefix.size()] >= '0' && name[prefix.size()] <= '9') {
      ++count;
    }
  }
  return count;
}

// Returns the value after "key" in a file with "key : value" lines.
std::string field_of(const std::string& path, std::string_view key, char separator) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const std::size_t at = line.find(separator);
    if (at == std::string::npos || trim(std::string_view(line).substr(0, at)) != key) continue;
    std::string value(trim(std::string_view(line).substr(at + 1)));
    if (value.size() >= 2 && value.front() == '"') value = value.substr(1, value.size() - 2);
    return value;
  }
  return {};
}

std::int64_t kib_of(const std::string& path, std::string_view key) {
  const std::string value = field_of(path, key, ':');
  return parse_int<std::int64_t>(value.substr(0, value.find(' '))).value_or(0) * 1024;
}

Json limit(int which) {
  rlimit value{};
  if (::getrlimit(static_cast<__rlimit_resource>(which), &value) != 0) return nullptr;
  Json out;
  // -1 means unlimited.
  const auto number = [](rlim_t n) {
    return n == RLIM_INFINITY ? std::int64_t{-1} : static_cast<std::int64_t>(n);
  };
  out["soft"] = number(value.rlim_cur);
  out["hard"] = number(value.rlim_max);
  return out;
}

std::string file_system_of(const std::string& path) {
  std::ifstream file("/proc/self/mounts");
  std::string best, kind;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string device, place, type;
    words >> device >> place >> type;
    // The mount with the longest matching path holds the file.
    const bool holds = place == "/" || path == place || path.rfind(place + "/", 0) == 0;
    if (holds && place.size() >= best.size()) {
      best = place;
      kind = type;
    }
  }
  return kind;
}

Json disk(const std::string& path) {
  struct statvfs info {};
  Json out;
  out["path"] = path;
  if (::statvfs(path.c_str(), &info) != 0) {
    out["error"] = std::strerror(errno);
    return out;
  }
  const auto block = static_cast<std::int64_t>(info.f_frsize);
  out["total_bytes"] = block * static_cast<std::int64_t>(info.f_blocks);
  out["free_bytes"] = block * static_cast<std::int64_t>(info.f_bavail);
  // Some file systems (btrfs) have no fixed number of inodes.
  out["free_inodes"] = info.f_files == 0 ? -1 : static_cast<std::int64_t>(info.f_favail);
  out["read_only"] = (info.f_flag & ST_RDONLY) != 0;
  out["noexec"] = (info.f_flag & ST_NOEXEC) != 0;
  out["file_system"] = file_system_of(path);
  return out;
}

Json cpu_facts() {
  Json cpu;
  cpu["model"] = cpu_model(whole_file("/proc/cpuinfo"));
  cpu_set_t set;
  cpu["usable"] = ::sched_getaffinity(0, sizeof set, &set) == 0
                      ? CPU_COUNT(&set)
                      : static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  // Differs from the usable ones in containers and batch jobs.
  cpu["online"] = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  cpu["numa_nodes"] = count_numbered("/sys/devices/system/node", "node");
  const std::string smt = first_line("/sys/devices/system/cpu/smt/active");
  cpu["smt"] = smt == "1";
  cpu["governor"] = first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
  return cpu;
}

// -1, and 0 CPUs: no limit.
Json cgroup_facts() {
  const auto group = launcher::cgroup_limits("");
  Json out;
  out["path"] = group.path;
  out["memory_max"] = group.memory.value_or(-1);
  out["pids_max"] = group.pids.value_or(-1);
  out["cpus"] = group.cpus.value_or(0);
  return out;
}

Json clock_facts() {
  timex state{};
  Json clock;
  const int answer = ::adjtimex(&state);
  // The kernel knows whether a time daemon disciplines its clock.
  clock["synchronised"] = answer >= 0 && answer != TIME_ERROR && (state.status & STA_UNSYNC) == 0;
  return clock;
}

}  // namespace

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string whole_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

namespace {

void for_each_process(const std::function<void(int pid, const std::string& folder)>& visit) {
  const std::unique_ptr<DIR, int (*)(DIR*)> proc(::opendir("/proc"), ::closedir);
  while (proc != nullptr) {
    // Processes may end at any moment; their files then read as empty.
    const dirent* item = ::readdir(proc.get());
    if (item == nullptr) break;
    const auto pid = parse_int<int>(item->d_name);
    if (pid) visit(*pid, std::string("/proc/") + item->d_name);
  }
}

std::string status_field(const std::string& status, const std::string& name) {
  const std::size_t at = ("\n" + status).find("\n" + name + ":");
  if (at == std::string::npos) return {};
  const std::size_t begin = at + name.size() + 1;
  return std::string(
      trim(std::string_view(status).substr(begin, status.find('\n', begin) - begin)));
}

std::string command_of(const std::string& folder) {
  std::string command = whole_file(folder + "/cmdline");
  std::replace(command.begin(), command.end(), '\0', ' ');
  return std::string(trim(command.substr(0, 120)));
}

}  // namespace

Json machine_facts(const std::string& cache_directory) {
  Json facts;
  utsname names{};
  ::uname(&names);
  facts["hostname"] = names.nodename;
  facts["kernel"] = names.release;
  facts["machine"] = names.machine;
  facts["os"] = field_of("/etc/os-release", "PRETTY_NAME", '=');
  facts["cpu"] = cpu_facts();
  Json memory;
  memory["total_bytes"] = kib_of("/proc/meminfo", "MemTotal");
  memory["available_bytes"] = kib_of("/proc/meminfo", "MemAvailable");
  memory["swap_total_bytes"] = kib_of("/proc/meminfo", "SwapTotal");
  facts["memory"] = std::move(memory);
  facts["cgroup"] = cgroup_facts();
  Json limits;
  limits["memlock"] = limit(RLIMIT_MEMLOCK);
  limits["stack"] = limit(RLIMIT_STACK);
  limits["nofile"] = limit(RLIMIT_NOFILE);
  limits["nproc"] = limit(RLIMIT_NPROC);
  facts["limits"] = std::move(limits);
  facts["shm"] = disk("/dev/shm");
  facts["tmp"] = disk("/tmp");
  facts["cache"] = disk(cache_directory.empty() ? "/tmp" : cache_directory);
  facts["clock"] = clock_facts();
  double load[3] = {};
  if (::getloadavg(load, 3) > 0) facts["load"] = load[0];
  // Only Mellanox adapters; others have no common prefix.
  facts["infiniband_devices"] = count_numbered("/sys/class/infiniband", "mlx5_") +
                                count_numbered("/sys/class/infiniband", "mlx4_");
  facts["gpus"]["devices"] = count_numbered("/dev", "nvidia");
  const std::string driver = driver_version(whole_file("/proc/driver/nvidia/version"));
  if (!driver.empty()) facts["gpus"]["driver"] = driver;
  facts["zombies"] = zombies();
  return facts;
}

Json zombies() {
  int count = 0;
  std::map<int, int> parents;
  for_each_process([&](int, const std::string& folder) {
    const std::string status = whole_file(folder + "/status");
    if (status_field(status, "State").substr(0, 1) != "Z") return;
    ++count;
    ++parents[parse_int<int>(status_field(status, "PPid")).value_or(0)];
  });
  Json out;
  out["count"] = count;
  const auto most =
      std::max_element(parents.begin(), parents.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most == parents.end()) return out;
  out["parent"]["pid"] = most->first;
  out["parent"]["children"] = most->second;
  out["parent"]["command"] = command_of("/proc/" + std::to_string(most->first));
  return out;
}

// A process with our mark has its agent among its ancestors while the agent lives. If init has
// adopted it, it has outlived its job.
Json leftovers() {
  Json found = Json::array();
  for_each_process([&](int pid, const std::string& folder) {
    if (pid == ::getpid()) return;
    if (whole_file(folder + "/environ").find("HORA_JOB_ID=") == std::string::npos) return;
    if (status_field(whole_file(folder + "/status"), "PPid") != "1") return;
    Json process;
    process["pid"] = pid;
    process["command"] = command_of(folder);
    found.push_back(std::move(process));
  });
  return found;
}

// Facts that need a program to run: Python, the C library, NVIDIA's tools.

namespace {

Json python_facts(bool deep, std::chrono::milliseconds timeout) {
  const Answer answer =
      ask({"python3", "-c", kPythonQuestions, deep ? "deep" : "versions"}, timeout);
  Json out;
  if (answer.timed_out) {
    out["error"] = "python3 did not answer in time";
    return out;
  }
  // 127: not found; -1: it could not be started or did not exit by itself.
  if (answer.exit_code == 127 || answer.exit_code == -1) {
    out["error"] = "no python3 in PATH";
    return out;
  }
  // Python prints one JSON object.
  out = Json::parse(answer.output, nullptr, false);
  if (out.is_discarded() || !out.is_object()) {
    out = Json::object();
    out["error"] = "python3 ended with code " + std::to_string(answer.exit_code);
  }
  return out;
}

Json nvidia_facts(std::chrono::milliseconds timeout) {
  const Answer answer = ask(
      {"nvidia-smi", std::string("--query-gpu=") + kGpuQuestions, "--format=csv,noheader,nounits"},
      timeout);
  return answer.exit_code == 0 ? gpus_of(answer.output) : Json::array();
}

int gpu_processes(std::chrono::milliseconds timeout) {
  const Answer answer =
      ask({"nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"}, timeout);
  return answer.exit_code == 0 ? count_processes(answer.output) : -1;
}

}  // namespace

Json software_facts(bool deep, std::chrono::milliseconds timeout) {
  Json out;
  // Python takes the longest, so it runs in parallel with the others.
  auto python = std::async(std::launch::async, [=] { return python_facts(deep, timeout); });
  const Answer libc = ask({"getconf", "GNU_LIBC_VERSION"}, timeout);
  const std::string text(trim(libc.output));
  if (libc.exit_code == 0 && text.rfind("glibc ", 0) == 0) out["glibc"] = text.substr(6);
  out["nvidia"] = nvidia_facts(timeout);
  // What horarun --container could use.
  for (const launcher::ContainerRuntime& each : launcher::container_runtimes()) {
    const std::string name(each.program);
    const Answer version = ask({name, "--version"}, timeout);
    if (version.exit_code == 0) out["containers"][name] = std::string(trim(version.output));
  }
  if (!out["nvidia"].empty()) out["gpu_processes"] = gpu_processes(timeout);
  out["python"] = python.get();
  return out;
}

}  // namespace hora::doctor
