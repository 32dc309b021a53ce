#include "launcher/process/process_table.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <memory>
#include <string>
#include <unordered_map>

#include "rendezvous/os/fd.h"

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_pidfd_send_signal
#define SYS_pidfd_send_signal 424
#endif

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

std::string proc_path(pid_t pid, const char* file) {
  return "/proc/" + std::to_string(pid) + "/" + file;
}

}  // namespace

std::optional<ProcessEntry> parse_process_stat(std::string_view text) {
  ProcessEntry entry;
  // The command's name stands in parentheses and may itself hold any of " )(".
  const std::size_t close = text.rfind(')');
  if (close == std::string_view::npos || close + 2 >= text.size()) return std::nullopt;
  std::string_view rest = text.substr(close + 2);
  if (!take_number(text, entry.pid)) return std::nullopt;
  entry.state = rest.front();
  rest.remove_prefix(1);
  if (!take_number(rest, entry.parent) || !take_number(rest, entry.group) ||
      !take_number(rest, entry.session)) {
    return std::nullopt;
  }
  constexpr int kFieldsBetweenSessionAndStart = 15;  // proc(5): fields 7 to 21
  if (!skip_fields(rest, kFieldsBetweenSessionAndStart) ||
      !take_number(rest, entry.started_ticks)) {
    return std::nullopt;
  }
  return entry;
}

std::optional<ProcessEntry> read_process(pid_t pid) {
  os::Fd file(::open(proc_path(pid, "stat").c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return std::nullopt;
  std::array<char, 1024> text;
  const ssize_t got = ::read(file.get(), text.data(), text.size());
  if (got <= 0) return std::nullopt;
  return parse_process_stat({text.data(), static_cast<std::size_t>(got)});
}

std::vector<ProcessEntry> list_processes() {
  std::vector<ProcessEntry> all;
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir("/proc"), ::closedir);
  if (!directory) return all;
  while (const dirent* item = ::readdir(directory.get())) {
    const std::string_view name(item->d_name);
    pid_t pid = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (error != std::errc() || end != name.data() + name.size()) continue;
    if (auto entry = read_process(pid)) all.push_back(*entry);
  }
  return all;
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

bool environment_has(pid_t pid, std::string_view mark) {
  os::Fd file(::open(proc_path(pid, "environ").c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return false;
  // Entries end in NUL. Keeps one entry's worth of the text before each read.
  const std::string wanted = std::string(1, '\0').append(mark).append(1, '\0');
  std::string text(1, '\0');
  std::array<char, 16 * 1024> chunk;
  while (true) {
    const ssize_t got = ::read(file.get(), chunk.data(), chunk.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    text.append(chunk.data(), static_cast<std::size_t>(got));
    if (text.find(wanted) != std::string::npos) return true;
    if (text.size() > wanted.size()) text.erase(0, text.size() - wanted.size());
  }
}

bool signal_process(const ProcessEntry& process, int signal) {
  const auto is_still_it = [&process] {
    const auto now = read_process(process.pid);
    return now && now->started_ticks == process.started_ticks;
  };
  os::Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, process.pid, 0)));
  if (!pidfd.valid()) {
    if (errno != ENOSYS) return false;
    return is_still_it() && ::kill(process.pid, signal) == 0;  // Linux < 5.3
  }
  // The pidfd pins the process; now its number cannot change hands between look and kill.
  return is_still_it() && ::syscall(SYS_pidfd_send_signal, pidfd.get(), signal, nullptr, 0) == 0;
}

}  // namespace hora::launcher
