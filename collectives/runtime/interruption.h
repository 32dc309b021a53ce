// SPDX-License-Identifier: Apache-2.0
// Why this rank must break off its wait. Any thread may set it; the waiting one checks it.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace hora::collectives {

class Interruption {
 public:
  // The world is to end without the consent of the others. The first reason counts.
  void stop(std::string reason) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!stop_reason_) stop_reason_ = std::move(reason);
    }
    stopping_.store(true, std::memory_order_release);
  }
  std::optional<std::string> stop_reason() const {
    if (!stopping_.load(std::memory_order_acquire)) return std::nullopt;
    const std::lock_guard<std::mutex> lock(mutex_);
    return stop_reason_;
  }

  // These ranks have given no sign of life while others waited for them.
  void miss(std::vector<int> silent) {
    const std::lock_guard<std::mutex> lock(mutex_);
    silent_ = std::move(silent);
  }
  std::vector<int> silent_ranks() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return silent_;
  }

 private:
  std::atomic<bool> stopping_{false};
  mutable std::mutex mutex_;
  std::vector<int> silent_;  // guarded by it
  std::optional<std::string> stop_reason_;
};

}  // namespace hora::collectives
