// SPDX-License-Identifier: Apache-2.0
// What the commands of an engine say while they run a job's hosts, what the engine answers when it
// is asked for the job, and whether that tells that it has ended the job. May be used by any
// thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/engines/engine.h"
#include "launcher/plan/job_spec.h"
#include "launcher/protocol/messages.h"

namespace hora::launcher {

class EngineWords {
 public:
  EngineWords(const EngineDescriptor& engine, JobEngine job)
      : engine_(engine), job_(std::move(job)) {}

  const EngineDescriptor& engine() const { return engine_; }
  void hear(std::string_view said);            // on stderr
  void command_ended(const std::string& how);  // the one with the agents, which nobody had asked to
  std::vector<FailedHost> failed_hosts();      // so far, by what was said

  // E_ENGINE, with the words. Waits for them, `patience` at the most, and asks the engine then:
  // for when a job has ended in a way that this could explain. Without patience, only what was
  // heard counts.
  std::optional<Failure> why_ended(std::chrono::milliseconds patience);

 private:
  std::string heard(std::chrono::milliseconds patience);
  std::string asked() const;

  const EngineDescriptor& engine_;
  const JobEngine job_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string said_;  // guarded by mutex_, as the next one; the last of it
  std::string end_;
};

}  // namespace hora::launcher
