// SPDX-License-Identifier: Apache-2.0
// A few threads, each with its own event loop; a host's connection lives on one of them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "rendezvous/base/result.h"
#include "rendezvous/os/event_loop.h"

namespace hora::launcher {

class IoThreads {
 public:
  static Result<std::unique_ptr<IoThreads>> start(int count);
  ~IoThreads();  // stop(), however long it takes

  int count() const { return static_cast<int>(threads_.size()); }
  os::EventLoop& loop(int index) { return *threads_[static_cast<std::size_t>(index)].loop; }

  // Ends the loops, including everything posted before, and waits for the threads: as long as the
  // longest handler computes. False when one does nothing for as long as `patience`, such as a
  // library that waits for a key on a dead file system: then nothing that the threads use may ever
  // be destroyed, this object included.
  bool stop(std::chrono::milliseconds patience = std::chrono::hours(24 * 365));

 private:
  struct Thread {
    std::unique_ptr<os::EventLoop> loop;
    std::thread thread;
  };
  IoThreads() = default;
  void run(os::EventLoop& loop);
  std::chrono::nanoseconds processor_time();
  bool wait_for_end(std::chrono::milliseconds patience);

  std::vector<Thread> threads_;
  std::mutex mutex_;
  std::condition_variable one_ended_;
  std::size_t ended_ = 0;
};

}  // namespace hora::launcher
