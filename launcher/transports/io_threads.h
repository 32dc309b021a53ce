// A few threads, each with its own event loop; a host's connection lives on one of them.
#pragma once

#include <memory>
#include <thread>
#include <vector>

#include "rendezvous/base/result.h"
#include "rendezvous/os/event_loop.h"

namespace hora::launcher {

class IoThreads {
 public:
  static Result<std::unique_ptr<IoThreads>> start(int count);
  ~IoThreads();  // stop()

  int count() const { return static_cast<int>(threads_.size()); }
  os::EventLoop& loop(int index) { return *threads_[static_cast<std::size_t>(index)].loop; }

  // Ends the loops, what was posted before included, and waits for the threads. Handlers never
  // block, so this takes as long as the longest handler.
  void stop();

 private:
  struct Thread {
    std::unique_ptr<os::EventLoop> loop;
    std::thread thread;
  };
  IoThreads() = default;
  std::vector<Thread> threads_;
};

}  // namespace hora::launcher
