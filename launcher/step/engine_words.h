// SPDX-License-Identifier: Apache-2.0
// What the commands of an engine say while they run a job's hosts, and whether that tells that the
// engine has ended the job. May be used by any thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "launcher/engines/engine.h"
#include "launcher/protocol/messages.h"

namespace hora::launcher {

class EngineWords {
 public:
  explicit EngineWords(const EngineDescriptor& engine) : engine_(engine) {}

  const EngineDescriptor& engine() const { return engine_; }
  void hear(std::string_view said);            // on stderr
  void command_ended(const std::string& how);  // the one with the agents, which nobody had asked to

  // E_ENGINE, with the words. Waits for them, `patience` at the most: to be asked when a job has
  // ended in a way that this could explain.
  std::optional<Failure> why_ended(std::chrono::milliseconds patience);

 private:
  const EngineDescriptor& engine_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string said_;  // guarded by mutex_, as the next one; the last of it
  std::string end_;
};

}  // namespace hora::launcher
