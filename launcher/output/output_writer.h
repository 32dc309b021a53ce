// Writes to descriptors that may block (a terminal under Ctrl-S, a slow pipe, a stuck file system)
// without ever blocking the event loop: one thread, one queue, in the order of submission.
//
// The queue is bounded by the flow control of the agent protocol: what was written is reported
// back, and only then may the agents send more.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "rendezvous/os/event_loop.h"

namespace hora::launcher {

class OutputWriter {
 public:
  struct Handlers {
    // On the loop's thread: `bytes` of rank output from `host` are done with.
    std::function<void(int host, std::size_t bytes)> on_written;
    // On the loop's thread, once per descriptor: writing to `fd` failed; it gets nothing more.
    std::function<void(int fd, int errnum)> on_broken;
  };

  OutputWriter(os::EventLoop& loop, Handlers handlers);
  // Stops at once; what is still queued is lost. Call flush() first for a clean end.
  ~OutputWriter();
  OutputWriter(const OutputWriter&) = delete;
  OutputWriter& operator=(const OutputWriter&) = delete;

  // Queues `text` for `fd`. `credit` bytes are reported to on_written(host) once it is written.
  void write(int fd, std::string text, int host, std::size_t credit);
  // Calls `done` on the loop's thread when all that was queued before is written.
  void flush(std::function<void()> done);

 private:
  struct Item {
    int fd;
    std::string text;
    int host;
    std::size_t credit;
    std::function<void()> done;
  };

  void run();
  void write_item(const Item& item);

  os::EventLoop& loop_;
  Handlers handlers_;
  std::mutex mutex_;
  std::condition_variable ready_;
  std::condition_variable exited_;
  std::deque<Item> queue_;
  bool stopping_ = false;
  bool has_exited_ = false;
  std::vector<int> broken_;  // the thread's own
  std::thread thread_;
};

}  // namespace hora::launcher
