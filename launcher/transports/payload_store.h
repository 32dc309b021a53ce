// SPDX-License-Identifier: Apache-2.0
// The payloads of the agents that a transport has been given: one per file.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "launcher/transports/agent_payload.h"

namespace hora::launcher {

class PayloadStore {
 public:
  // Thread-safe.
  std::shared_ptr<AgentPayload> of(const std::string& path) {
    std::lock_guard lock(mutex_);
    auto& payload = payloads_[path];
    if (!payload) payload = std::make_shared<AgentPayload>(path);
    return payload;
  }

  // Ends every payload's thread; no receiver is called afterwards.
  void close() {
    std::lock_guard lock(mutex_);
    for (auto& [path, payload] : payloads_) payload->close();
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<AgentPayload>> payloads_;
};

}  // namespace hora::launcher
