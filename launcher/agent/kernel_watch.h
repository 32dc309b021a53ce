// SPDX-License-Identifier: Apache-2.0
// What the kernel reports while ranks run: faults of NVIDIA GPUs in its log, and processes killed
// for lack of memory.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "launcher/protocol/messages.h"
#include "rendezvous/os/fd.h"

namespace hora::launcher {

// A message of the NVIDIA driver about a GPU in the kernel's log:
//   NVRM: Xid (PCI:0000:3b:00): 31, pid=4711, name=python3, Ch 00000008, intr 10000000. MMU Fault
//   ...
struct XidMessage {
  std::string device;  // "0000:3b:00"; of a part of one "0000:3b:00 GPU-I:05"
  int code = 0;
  std::int64_t pid = 0;  // as the kernel counts; 0: the driver does not know it
  std::string program;   // of that process; may be empty
  std::string text;      // the rest
  friend bool operator==(const XidMessage&, const XidMessage&) = default;
};

// Returns nothing if the line is not from this driver.
std::optional<XidMessage> parse_xid(std::string_view line);

// The messages of the kernel since this object was made, where this process may read them
// (/dev/kmsg). Containers and users other than root often may not, which is not an error. Never
// waits. One thread at a time.
class KernelLog {
 public:
  KernelLog();
  // To be watched for EPOLLIN; not valid where the messages cannot be read.
  const os::Fd& fd() const { return fd_; }
  // The messages since the last call, without the kernel's header. False: no more can be read here.
  bool read_new(const std::function<void(std::string_view message)>& take);

 private:
  os::Fd fd_;
};

// Faults of this host's NVIDIA GPUs since begin(), from the kernel's log. Never waits.
// Single-threaded, on the agent's loop.

// Whether the message is about one of these GPUs ("0000:3b:00.0"). Of a host whose driver does not
// list them, any is.
bool is_of_gpus(const XidMessage& message, const std::vector<std::string>& gpus);

class GpuWatch {
 public:
  // Where there are no GPUs nothing is opened, and there are no faults.
  void begin();
  // To be watched for EPOLLIN; -1: there is nothing to watch.
  int fd() const { return log_ && log_->fd().valid() ? log_->fd().get() : -1; }
  // Each kind of fault of each process once, and of one job not more than kMost. False: nothing
  // more will be read here.
  bool read_new(const std::function<void(const XidMessage&)>& take);

  static constexpr std::size_t kMost = kMostGpuFaults;

 private:
  std::vector<std::string> gpus_;
  std::optional<KernelLog> log_;
  std::set<std::tuple<std::string, int, std::int64_t>> reported_;
};

// Whether the kernel has killed processes for lack of memory since begin(), from its counters: a
// killed process gets no reason. Reads a few files of /proc and /sys, which never wait. One thread
// at a time.
class OomWatch {
 public:
  void begin();
  // Explains a rank that a foreign SIGKILL ended; empty if no counter has changed, or before
  // begin().
  std::string verdict() const;

 private:
  bool begun_ = false;
  std::string cgroup_;         // our own cgroup v2 folder; empty: none
  std::int64_t machine_ = -1;  // -1: cannot be read
  std::int64_t cgroup_kills_ = -1;
};

}  // namespace hora::launcher
