// SPDX-License-Identifier: Apache-2.0
// What horarun itself says on standard error while a job runs: messages, events, the log, the line
// of the start. In the order in which it was said, and without waiting for the reader: a terminal
// under Ctrl-S, or a pipe that nobody reads, keeps neither heartbeats nor signals waiting.
#pragma once

#include <cstddef>
#include <functional>
#include <mutex>
#include <string>

#include "launcher/output/output_writer.h"
#include "rendezvous/os/event_loop.h"

namespace hora::launcher {

class Console {
 public:
  // What waits for the reader at most. What is said beyond that is lost, which is told later.
  static constexpr std::size_t kMostHeld = 16u << 20;

  // Text that is still held in the destructor is lost: call flush() first.
  explicit Console(os::EventLoop& loop, int fd);

  void say(std::string text);  // from any thread
  // Calls `done` on the loop's thread when all that was said before is written.
  void flush(std::function<void()> done);
  // Why what was said is not all there; empty: it is. Of what was said before a flush() that is
  // done. On the loop's thread.
  std::string loss();

 private:
  int fd_;
  int broken_ = 0;  // errno
  std::mutex mutex_;
  std::size_t held_ = 0;
  std::size_t lost_ = 0;      // since it was last told
  std::size_t all_lost_ = 0;  // in all
  OutputWriter writer_;
};

}  // namespace hora::launcher
