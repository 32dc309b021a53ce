// SPDX-License-Identifier: Apache-2.0
// /proc is not a snapshot: processes start, end and change parents while it is read. Processes that
// vanish between listing and reading are left out, and every number is taken together with the time
// of its start, which no later process of that number shares.
#include "launcher/process/process_table.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <memory>
#include <string>
#include <unordered_map>

#include "rendezvous/os/fd.h"
#include "rendezvous/os/files.h"
#include "rendezvous/os/process_end.h"

namespace hora::launcher {

namespace {

template <typename T>
bool take_number(std::string_view& text, T& value) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}

bool skip_fields(std::string_view& text, int count) {
  for (int i = 0; i < count; ++i) {
    while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
    const std::size_t space = text.find(' ');
    if (space == std::string_view::npos) return false;
    text.remove_prefix(space);
  }
  return true;
}

// What stands in /proc/PID/stat behind the command's name, which is in parentheses and may itself
// hold any of " )(": field 3 of proc(5) and those after it.
std::string_view behind_name(std::string_view stat) {
  const std::size_t close = stat.rfind(')');
  return close == std::string_view::npos ? "" : stat.substr(std::min(close + 2, stat.size()));
}

std::string proc_path(pid_t pid, const std::string& file) {
  return "/proc/" + std::to_string(pid) + "/" + file;
}

// The names in a directory of /proc that are numbers. A directory that is gone has none; one that
// cannot be opened because descriptors or memory are missing may have any.
std::optional<std::vector<pid_t>> numbers_in(const std::string& path, long position = 0) {
  std::vector<pid_t> numbers;
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(path.c_str()), ::closedir);
  if (!directory) {
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) return std::nullopt;
    return numbers;
  }
  if (position > 0) ::seekdir(directory.get(), position);
  while (const dirent* item = ::readdir(directory.get())) {
    const std::string_view name(item->d_name);
    pid_t number = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
    if (error == std::errc() && end == name.data() + name.size()) numbers.push_back(number);
  }
  return numbers;
}

std::optional<ProcessEntry> read_stat(const std::string& path) {
  os::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return std::nullopt;
  // A line of 52 numbers and a name of at most 64 bytes. One read() gives it as of one moment.
  std::array<char, 1024> text;
  const ssize_t got = ::read(file.get(), text.data(), text.size());
  if (got <= 0) return std::nullopt;
  return parse_process_stat({text.data(), static_cast<std::size_t>(got)});
}

// A zombie and a kernel thread have no environment, and another user's may not be read: that is no
// "no".
enum class Presence { kYes, kNo, kNothingToRead };

// Entries end in NUL. Keeps one entry's worth of the text before each read.
Presence find_entry(const std::string& path, std::string_view mark) {
  os::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return Presence::kNothingToRead;
  // With the NUL on both sides: "XHORA_JOB=1" and "HORA_JOB=12" do not match "HORA_JOB=1".
  const std::string wanted = std::string(1, '\0').append(mark).append(1, '\0');
  std::string text(1, '\0');
  std::array<char, 16 * 1024> chunk;
  for (Presence found = Presence::kNothingToRead;; found = Presence::kNo) {
    ssize_t got;
    do {
      got = ::read(file.get(), chunk.data(), chunk.size());
    } while (got < 0 && errno == EINTR);
    if (got <= 0) return found;
    text.append(chunk.data(), static_cast<std::size_t>(got));
    if (text.find(wanted) != std::string::npos) return Presence::kYes;
    if (text.size() > wanted.size()) text.erase(0, text.size() - wanted.size());
  }
}

// A position in /proc is a process's number and this (FIRST_PROCESS_ENTRY of the kernel), or one or
// two more.
constexpr long kProcessesInProc = 256;

// For each process that it names, the kernel makes an inode: a listing of a thousand older
// processes costs more than all else here. What begins at a position is complete if it has
// `lowest`, which lives: a kernel that counts positions otherwise lists all.
std::optional<std::vector<pid_t>> process_numbers_from(pid_t lowest) {
  if (lowest <= 0) return numbers_in("/proc");
  auto pids = numbers_in("/proc", kProcessesInProc + lowest);
  if (!pids || std::find(pids->begin(), pids->end(), lowest) != pids->end()) return pids;
  return numbers_in("/proc");
}

// Each number is asked for: where they are few, that costs less than a list, for which the kernel
// makes an inode for each process. A thread has no pidfd. Nothing where there are none (Linux
// < 5.3), or no descriptor is free.
std::optional<std::vector<pid_t>> process_numbers_between(pid_t lowest, pid_t highest) {
  std::vector<pid_t> numbers;
  for (pid_t pid = lowest; pid <= highest; ++pid) {
    const os::Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    if (pidfd.valid()) {
      numbers.push_back(pid);
    } else if (errno != ESRCH && errno != EINVAL && errno != ENOENT) {
      return std::nullopt;
    }
  }
  return numbers;
}

std::vector<ProcessEntry> read_processes(const std::vector<pid_t>& pids, pid_t lowest,
                                         pid_t highest) {
  std::vector<ProcessEntry> all;
  for (const pid_t pid : pids) {
    if (pid < lowest || pid > highest) continue;
    if (auto entry = read_process(pid)) all.push_back(*entry);
  }
  return all;
}

// The kernel counts the start of a process on this clock.
std::optional<double> seconds_since(std::uint64_t started_ticks) {
  timespec now{};
  const long ticks_per_second = ::sysconf(_SC_CLK_TCK);
  if (::clock_gettime(CLOCK_BOOTTIME, &now) != 0 || ticks_per_second <= 0) return std::nullopt;
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9 -
         static_cast<double>(started_ticks) / static_cast<double>(ticks_per_second);
}

// The largest number among the processes that were made since, of which `first` has the smallest.
// Nothing where it is unknown.
std::optional<pid_t> newest_number_since(const ProcessEntry& first) {
  const auto age = seconds_since(first.started_ticks);
  const auto load = os::read_file("/proc/loadavg");  // ends with the newest number
  const auto circle = os::read_file("/proc/sys/kernel/pid_max");
  if (!age || !load || !circle) return std::nullopt;
  std::string_view newest(*load);
  std::string_view numbers(*circle);
  pid_t last = 0;
  pid_t most = 0;
  const bool parsed = skip_fields(newest, 4) && take_number(newest, last) &&
                      take_number(numbers, most) &&
                      numbers_ascend_since(first.pid, *age, last, most);
  return parsed ? std::optional(last) : std::nullopt;
}

}  // namespace

std::optional<ProcessEntry> parse_process_stat(std::string_view text) {
  ProcessEntry entry;
  std::string_view rest = behind_name(text);
  if (rest.empty() || !take_number(text, entry.pid)) return std::nullopt;
  entry.state = rest.front();
  rest.remove_prefix(1);
  if (!take_number(rest, entry.parent) || !take_number(rest, entry.group) ||
      !take_number(rest, entry.session)) {
    return std::nullopt;
  }
  constexpr int kFieldsBetweenSessionAndThreads = 13;  // proc(5): fields 7 to 19
  constexpr int kFieldsBetweenThreadsAndStart = 1;
  if (!skip_fields(rest, kFieldsBetweenSessionAndThreads) || !take_number(rest, entry.threads) ||
      !skip_fields(rest, kFieldsBetweenThreadsAndStart) ||
      !take_number(rest, entry.started_ticks)) {
    return std::nullopt;
  }
  return entry;
}

std::optional<ProcessEntry> read_process(pid_t pid) {
  auto entry = read_stat(proc_path(pid, "stat"));
  if (!entry || !entry->is_zombie() || entry->threads <= 1) return entry;
  // Z of the main thread alone, while others run on: the process lives.
  const auto threads = list_threads(pid);
  if (!threads) {
    entry->state = '?';  // unknown, so it is not taken for dead
    return entry;
  }
  for (const pid_t thread : *threads) {
    const auto other = read_stat(proc_path(pid, "task/" + std::to_string(thread) + "/stat"));
    if (!other || other->is_zombie()) continue;
    entry->state = other->state;
    break;
  }
  return entry;
}

std::optional<ProcessUsage> read_usage(pid_t pid) {
  const auto stat = os::read_file(proc_path(pid, "stat"));
  if (!stat) return std::nullopt;
  std::string_view rest = behind_name(*stat);
  std::int64_t user, system, children_user, children_system, pages;
  constexpr int kFieldsBeforeTimes = 11;  // proc(5): fields 3 to 13
  constexpr int kFieldsBetweenTimesAndPages = 6;
  if (!skip_fields(rest, kFieldsBeforeTimes) || !take_number(rest, user) ||
      !take_number(rest, system) || !take_number(rest, children_user) ||
      !take_number(rest, children_system) || !skip_fields(rest, kFieldsBetweenTimesAndPages) ||
      !take_number(rest, pages)) {
    return std::nullopt;
  }
  const std::int64_t ticks = user + system + children_user + children_system;
  return ProcessUsage{ticks * 1000 / ::sysconf(_SC_CLK_TCK), pages * ::sysconf(_SC_PAGESIZE)};
}

std::optional<std::vector<ProcessEntry>> list_processes() {
  const auto pids = numbers_in("/proc");
  if (!pids) return std::nullopt;
  return read_processes(*pids, 0, std::numeric_limits<pid_t>::max());
}

std::optional<std::vector<ProcessEntry>> list_processes_since(const ProcessEntry& first) {
  constexpr pid_t kFew = 64;
  if (const auto newest = newest_number_since(first); newest && *newest - first.pid < kFew) {
    const auto pids = process_numbers_between(first.pid, *newest);
    if (pids) return read_processes(*pids, first.pid, *newest);
  }
  const auto pids = process_numbers_from(first.pid);
  if (!pids) return std::nullopt;
  // Asked after the list: an entry of it with a larger number is older than `first`. Where numbers
  // have wrapped since the machine started, that is most of them.
  const auto newest = newest_number_since(first);
  if (!newest) return list_processes();
  return read_processes(*pids, first.pid, *newest);
}

bool numbers_ascend_since(pid_t first, double age_s, pid_t last, pid_t circle) {
  // Far more than any machine makes: the circle takes twice that long, at least.
  constexpr double kMostPerSecond = 100'000;
  return last >= first && age_s >= 0 && age_s * kMostPerSecond < circle / 2.0;
}

std::optional<std::vector<pid_t>> list_threads(pid_t pid) {
  return numbers_in(proc_path(pid, "task"));
}

std::optional<std::vector<pid_t>> list_children(pid_t pid) {
  std::vector<pid_t> children;
  bool listed = false;
  // Each thread has those that it has made.
  for (const pid_t thread : list_threads(pid).value_or(std::vector<pid_t>())) {
    const auto text = os::read_file(proc_path(pid, "task/" + std::to_string(thread) + "/children"));
    if (!text) continue;
    listed = true;
    std::string_view rest(*text);
    for (pid_t child = 0; take_number(rest, child);) children.push_back(child);
  }
  if (!listed) return std::nullopt;
  return children;
}

std::vector<ProcessEntry> descendants_of(pid_t root, const std::vector<ProcessEntry>& all) {
  std::unordered_multimap<pid_t, const ProcessEntry*> children;
  for (const ProcessEntry& entry : all) children.emplace(entry.parent, &entry);
  std::vector<ProcessEntry> found;
  std::vector<pid_t> open{root};
  while (!open.empty()) {
    const pid_t parent = open.back();
    open.pop_back();
    const auto [first, last] = children.equal_range(parent);
    for (auto child = first; child != last; ++child) {
      found.push_back(*child->second);
      open.push_back(child->second->pid);
    }
    children.erase(first, last);  // a table read while processes moved may hold a circle
  }
  return found;
}

bool has_signal(std::string_view status, std::string_view mask, int signal) {
  const std::string field = "\n" + std::string(mask) + ":\t";
  const std::size_t at = status.find(field);
  if (at == std::string_view::npos) return false;
  // A hexadecimal number with one bit for each signal, from 1 on.
  const std::string bits(status.substr(at + field.size(), 16));
  return ((std::strtoull(bits.c_str(), nullptr, 16) >> (signal - 1)) & 1) != 0;
}

bool handles_signal(pid_t pid, int signal) {
  const auto status = os::read_file(proc_path(pid, "status"));
  return status && has_signal(*status, "SigCgt", signal);
}

Pulse pulse_of(pid_t pid) {
  Pulse pulse;
  // /proc of another PID namespace has processes of the same numbers. There, and where it cannot be
  // read (ENOMEM from read() while a cgroup has no memory left, EMFILE, hidepid), only the kernel's
  // answer to a signal is known: whether there is such a process.
  const auto self = read_stat("/proc/self/stat");
  const bool is_our_proc = self && self->pid == ::getpid();
  const auto process = is_our_proc ? read_process(pid) : std::nullopt;
  if (!process) {
    if (::kill(pid, 0) != 0 && errno == ESRCH) pulse.standing = Standing::kGone;
    return pulse;
  }
  if (process->is_zombie()) {
    pulse.standing = Standing::kGone;
  } else if (process->state == 'T' || process->state == 't') {
    pulse.standing = Standing::kStopped;
  }
  // Nanoseconds on a processor, and waiting for one.
  const auto schedule = os::read_file(proc_path(pid, "schedstat"));
  std::string_view rest = schedule ? std::string_view(*schedule) : std::string_view();
  std::int64_t ran = 0;
  std::int64_t waited = 0;
  if (take_number(rest, ran) && take_number(rest, waited)) {
    pulse.waited = std::chrono::nanoseconds(waited);
  }
  return pulse;
}

bool environment_has(pid_t pid, std::string_view mark) {
  const Presence found = find_entry(proc_path(pid, "environ"), mark);
  if (found != Presence::kNothingToRead) return found == Presence::kYes;
  // A main thread that has ended has no memory any more; the others have the process's.
  for (const pid_t thread : list_threads(pid).value_or(std::vector<pid_t>())) {
    const Presence there =
        find_entry(proc_path(pid, "task/" + std::to_string(thread) + "/environ"), mark);
    if (there != Presence::kNothingToRead) return there == Presence::kYes;
  }
  return false;
}

bool signal_process(const ProcessEntry& process, int signal) {
  const auto is_still_it = [&process] {
    const auto now = read_process(process.pid);
    return now && now->started_ticks == process.started_ticks;
  };
  os::Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, process.pid, 0)));
  // The pidfd pins the process: its number cannot change hands between the look and the signal.
  if (pidfd.valid() && is_still_it()) {
    return ::syscall(SYS_pidfd_send_signal, pidfd.get(), signal, nullptr, 0) == 0;
  }
  // Linux < 5.3 has no pidfds, and a process that has one descriptor left cannot hold a pidfd and
  // look at the same time.
  pidfd.reset();
  return is_still_it() && ::kill(process.pid, signal) == 0;
}

}  // namespace hora::launcher
