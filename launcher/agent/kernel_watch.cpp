// SPDX-License-Identifier: Apache-2.0
#include "launcher/agent/kernel_watch.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>

#include "launcher/machine/host_facts.h"
#include "rendezvous/base/text.h"
#include "rendezvous/os/fd.h"
#include "rendezvous/os/files.h"

namespace hora::launcher {

// Follows /dev/kmsg from the current end on. Many containers and restricted kernels do not allow
// it; the object then yields nothing.

namespace {

// Limits one turn of the loop: the ranks need attention as well.
constexpr int kRecordsPerTurn = 4'096;
constexpr std::size_t kLongestRecord = 8 * 1024;  // of the kernel

}  // namespace

KernelLog::KernelLog() : fd_(::open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC)) {
  if (fd_.valid() && ::lseek(fd_.get(), 0, SEEK_END) < 0) fd_.reset();
}

// One read returns one record: "6,1234,5678901,-;the message
//  KEY=value
// ...".
bool KernelLog::read_new(const std::function<void(std::string_view)>& take) {
  static char record[kLongestRecord];
  for (int count = 0; fd_.valid() && count < kRecordsPerTurn; ++count) {
    const ssize_t got = ::read(fd_.get(), record, sizeof record);
    if (got < 0) {
      // EPIPE: newer messages have overwritten some that we have not read. EINVAL: a record is
      // longer than the buffer; the next read returns the next record.
      if (errno == EINTR || errno == EPIPE || errno == EINVAL) continue;
      return errno == EAGAIN;
    }
    if (got == 0) return false;
    std::string_view text(record, static_cast<std::size_t>(got));
    const std::size_t header_end = text.find(';');
    if (header_end == std::string_view::npos) continue;
    text.remove_prefix(header_end + 1);
    take(text.substr(0, text.find('\n')));
  }
  return fd_.valid();
}

namespace {

// The addresses by which the driver knows the GPUs of this host, or of this container.
std::vector<std::string> gpu_addresses() { return os::names_in("/proc/driver/nvidia/gpus"); }

}  // namespace

bool is_of_gpus(const XidMessage& message, const std::vector<std::string>& gpus) {
  const std::string address = message.device.substr(0, message.device.find(' '));
  // The kernel's log is that of the machine: in a container it holds faults of GPUs that others
  // use.
  return gpus.empty() || std::any_of(gpus.begin(), gpus.end(), [&address](const std::string& gpu) {
           return gpu.compare(0, address.size(), address) == 0;
         });
}

void GpuWatch::begin() {
  if (count_gpus() == 0) return;
  gpus_ = gpu_addresses();
  log_.emplace();
}

bool GpuWatch::read_new(const std::function<void(const XidMessage&)>& take) {
  if (!log_) return false;
  return log_->read_new([this, &take](std::string_view line) {
    const auto message = parse_xid(line);
    // A broken GPU repeats its fault thousands of times: each is reported once, and at most kMost
    // in all.
    if (!message || !is_of_gpus(*message, gpus_) || reported_.size() >= kMost) return;
    if (reported_.emplace(message->device, message->code, message->pid).second) take(*message);
  });
}

// Compares the kernel's counters of out-of-memory kills with their values at the start. This needs
// no privilege, unlike the kernel's log.

namespace {

// Files in /proc and cgroups report no size, so read to the end.
std::string whole(const std::string& path) {
  const os::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  char bytes[4096];
  for (ssize_t got = 1; file.valid() && got > 0;) {
    got = ::read(file.get(), bytes, sizeof bytes);
    if (got > 0) text.append(bytes, static_cast<std::size_t>(got));
  }
  return text;
}

// Returns the number after "name " at the beginning of a line, or -1.
std::int64_t counter(const std::string& text, std::string_view name) {
  for (const std::string_view line : split(text, '\n')) {
    if (line.size() > name.size() && line.substr(0, name.size()) == name &&
        line[name.size()] == ' ') {
      return parse_int<std::int64_t>(trim(line.substr(name.size()))).value_or(-1);
    }
  }
  return -1;
}

// Only cgroup v2 ("0::path") has memory.events.
std::string own_cgroup() {
  const std::string memberships = whole("/proc/self/cgroup");
  for (const std::string_view line : split(memberships, '\n')) {
    if (line.substr(0, 3) == "0::") return "/sys/fs/cgroup" + std::string(line.substr(3));
  }
  return {};
}

}  // namespace

void OomWatch::begin() {
  begun_ = true;
  cgroup_ = own_cgroup();
  machine_ = counter(whole("/proc/vmstat"), "oom_kill");
  cgroup_kills_ = cgroup_.empty() ? -1 : counter(whole(cgroup_ + "/memory.events"), "oom_kill");
}

std::string OomWatch::verdict() const {
  if (!begun_) return {};
  const std::int64_t in_cgroup =
      cgroup_kills_ < 0 ? -1 : counter(whole(cgroup_ + "/memory.events"), "oom_kill");
  // A kill inside the job's own cgroup is proof; one anywhere on the host is only a hint, and the
  // text says so.
  if (in_cgroup > cgroup_kills_) {
    const std::string limit(trim(whole(cgroup_ + "/memory.max")));
    return "the kernel's out-of-memory killer ended a process in this job's cgroup" +
           (limit.empty() || limit == "max" ? std::string()
                                            : ", whose limit is " + limit + " bytes");
  }
  const std::int64_t on_machine = machine_ < 0 ? -1 : counter(whole("/proc/vmstat"), "oom_kill");
  if (on_machine > machine_) {
    return "the kernel's out-of-memory killer was at work on this host while the rank ran";
  }
  return {};
}

// Parses "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python3, GPU has fallen off the bus.". The
// driver's versions differ in the middle part, and any user can write to the kernel's log, so every
// field is bounded and checked.

namespace {

constexpr std::size_t kLongestDevice = 64;
constexpr std::size_t kLongestText = 300;

bool takes(std::string_view& rest, std::string_view word) {
  if (rest.substr(0, word.size()) != word) return false;
  rest.remove_prefix(word.size());
  return true;
}

// Accepts "0000:3b:00", with the name of a part of the device after a blank.
bool is_device(std::string_view name) {
  if (name.empty() || name.size() > kLongestDevice) return false;
  const std::string_view address = name.substr(0, name.find(' '));
  return std::count(address.begin(), address.end(), ':') == 2 &&
         address.find_first_not_of("0123456789abcdefABCDEF:.") == std::string_view::npos &&
         std::all_of(name.begin(), name.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

// Takes everything up to the next comma, and the comma.
std::string_view item(std::string_view& rest) {
  const std::size_t comma = std::min(rest.find(','), rest.size());
  const std::string_view found = trim(rest.substr(0, comma));
  rest.remove_prefix(std::min(comma + 1, rest.size()));
  rest = trim(rest);
  return found;
}

// The driver prints '<unknown>' where it cannot identify the process.
std::string known(std::string_view word) {
  if (word.size() >= 2 && word.front() == '\'' && word.back() == '\'') {
    word = word.substr(1, word.size() - 2);
  }
  return word == "<unknown>" ? std::string() : std::string(word);
}

}  // namespace

std::optional<XidMessage> parse_xid(std::string_view line) {
  constexpr std::string_view kBegin = "NVRM: Xid (";
  const std::size_t begin = line.find(kBegin);
  if (begin == std::string_view::npos) return std::nullopt;
  std::string_view rest = line.substr(begin + kBegin.size());
  // Drivers from before 2013 print the address alone.
  takes(rest, "PCI:");
  const std::size_t close = rest.find(')');
  if (close == std::string_view::npos || !is_device(rest.substr(0, close))) return std::nullopt;
  XidMessage message;
  message.device = rest.substr(0, close);
  rest.remove_prefix(close + 1);
  if (!takes(rest, ":")) return std::nullopt;
  rest = trim(rest);
  const auto code = parse_int<int>(item(rest));
  if (!code || *code < 0 || *code > 9'999) return std::nullopt;
  message.code = *code;
  if (takes(rest, "pid=")) {
    message.pid = parse_int<std::int64_t>(known(item(rest))).value_or(0);
    if (message.pid < 0) message.pid = 0;
  }
  if (takes(rest, "name=")) message.program = known(item(rest)).substr(0, kLongestDevice);
  message.text = rest.substr(0, kLongestText);
  return message;
}

}  // namespace hora::launcher
