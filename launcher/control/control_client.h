// SPDX-License-Identifier: Apache-2.0
// Finds the running launchers of this user and asks them. Blocks, with a deadline.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "launcher/control/control_protocol.h"
#include "rendezvous/base/result.h"
#include "rendezvous/os/fd.h"

namespace hora::launcher {

// Those of all `folders`, in the order of their numbers. Removes the sockets that killed launchers
// have left. A launcher that is stopped is "not answering".
std::vector<JobSummary> running_jobs(const std::vector<std::string>& folders);

// The connection to a launcher, with the request sent. kNotFound: there is no such job.
class ControlConnection {
 public:
  static Result<ControlConnection> open(const std::vector<std::string>& folders, int job,
                                        const ControlRequest& request);
  // The next line; kTimedOut; kNotFound: the launcher has closed the connection.
  Result<std::string> read_line(std::chrono::milliseconds timeout);

 private:
  explicit ControlConnection(os::Fd fd) : fd_(std::move(fd)) {}
  os::Fd fd_;
  std::string buffer_;
};

}  // namespace hora::launcher
