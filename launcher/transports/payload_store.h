// SPDX-License-Identifier: Apache-2.0
// The payloads of the agents that a transport has been given: one per file.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "launcher/transports/agent_payload.h"
#include "launcher/transports/transport.h"

namespace hora::launcher {

class PayloadStore {
 public:
  // The payloads of image.builds, in their order. Thread-safe.
  std::vector<std::shared_ptr<AgentPayload>> of(const AgentImage& image) {
    std::lock_guard lock(mutex_);
    std::vector<std::shared_ptr<AgentPayload>> found;
    for (const AgentBuild& build : image.builds) {
      auto& payload = payloads_[build.path];
      if (!payload) payload = std::make_shared<AgentPayload>(build.path);
      found.push_back(payload);
    }
    return found;
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
