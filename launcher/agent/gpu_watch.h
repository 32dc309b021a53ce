// SPDX-License-Identifier: Apache-2.0
// Faults of this host's NVIDIA GPUs since begin(), as the kernel's log tells them.
// Never waits. Single-threaded, on the agent's loop.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "launcher/agent/kernel_log.h"
#include "launcher/agent/xid_message.h"
#include "launcher/protocol/agent_limits.h"

namespace hora::launcher {

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
  std::set<std::tuple<std::string, int, std::int64_t>> told_;
};

}  // namespace hora::launcher
