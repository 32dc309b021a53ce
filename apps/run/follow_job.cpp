// SPDX-License-Identifier: Apache-2.0
// The file has the output, and the connection says how the job stands. Between two attempts of a
// job (--restarts) the file stays, and there is no connection.
#include "apps/run/follow_job.h"

#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include "launcher/control/control_client.h"
#include "launcher/protocol/exit_code.h"
#include "rendezvous/base/time.h"

namespace hora::launcher {

namespace {

constexpr Milliseconds kLookEvery{100};

class Follower {
 public:
  Follower(const std::vector<std::string>& folders, const Follow& follow, OutputReader reader)
      : folders_(folders), follow_(follow), reader_(std::move(reader)) {}

  Result<std::optional<int>> run() {
    for (;;) {
      // Before the output is read: what was written until then is not missed.
      const auto ended = follow_.ended();
      const bool is_over = ended || reader_.is_complete();
      HORA_TRY(copy_new());
      if (is_over) {
        // Without either, the launcher was killed as it ended.
        return std::optional(code_.value_or(ended.value_or(kExitLauncher)));
      }
      if (listen() && follow_.until_running) return std::optional<int>();
    }
  }

 private:
  Status copy_new() {
    for (;;) {
      const auto bytes = reader_.read_new();
      if (!bytes) return bytes.error();
      if (bytes->empty()) break;
      if (std::fwrite(bytes->data(), 1, bytes->size(), follow_.to) != bytes->size()) {
        return errno_error(errno, "writing the output");
      }
    }
    if (std::fflush(follow_.to) != 0) return errno_error(errno, "writing the output");
    return Ok{};
  }

  // Waits a moment, or until the launcher says something. True: all ranks run.
  bool listen() {
    if (!connection_) {
      auto opened = ControlConnection::open(folders_, follow_.job, {ControlRequest::Kind::kAttach});
      if (opened) connection_.emplace(std::move(*opened));
    }
    if (!connection_) {
      std::this_thread::sleep_for(kLookEvery);
      return false;
    }
    const auto line = connection_->read_line(kLookEvery);
    if (!line && line.error().code != ErrorCode::kTimedOut) connection_.reset();
    if (!line) return false;
    if (const auto code = parse_exit_code(*line)) code_ = code;
    return *line == kRunningLine;
  }

  const std::vector<std::string>& folders_;
  const Follow& follow_;
  OutputReader reader_;
  std::optional<ControlConnection> connection_;
  std::optional<int> code_;
};

}  // namespace

Result<std::optional<int>> follow_job(const std::vector<std::string>& folders, OutputReader reader,
                                      const Follow& follow) {
  return Follower(folders, follow, std::move(reader)).run();
}

}  // namespace hora::launcher
