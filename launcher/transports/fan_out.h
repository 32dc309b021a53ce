// SPDX-License-Identifier: Apache-2.0
// Bounds how many hosts are being connected at one time, over all threads.
#pragma once

#include <deque>
#include <functional>
#include <mutex>

namespace hora::launcher {

class FanOut {
 public:
  explicit FanOut(int limit) : free_(limit > 0 ? limit : 1) {}

  // Calls `go` when there is a place, at once or from release(), on whichever thread that is: it
  // must do no more than post to its own loop.
  void acquire(std::function<void()> go) {
    {
      std::lock_guard lock(mutex_);
      if (free_ == 0) {
        waiting_.push_back(std::move(go));
        return;
      }
      --free_;
    }
    go();
  }

  void release() {
    std::function<void()> next;
    {
      std::lock_guard lock(mutex_);
      if (waiting_.empty()) {
        ++free_;
        return;
      }
      next = std::move(waiting_.front());
      waiting_.pop_front();
    }
    next();
  }

 private:
  std::mutex mutex_;
  int free_;
  std::deque<std::function<void()>> waiting_;
};

}  // namespace hora::launcher
