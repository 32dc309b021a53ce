// SPDX-License-Identifier: Apache-2.0
// horarun's own output on standard error while a job runs: messages, events, the log, the line of
// the start. In order, and without waiting for the reader: a terminal under Ctrl-S, or a pipe
// without a reader, delays neither heartbeats nor signals.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <mutex>
#include <string>

#include "launcher/output/output_writer.h"
#include "rendezvous/os/event_loop.h"

namespace hora::launcher {

// Of the terminal that standard error is; 0: it is none, and lines may be of any length.
std::size_t console_width();

class Console {
 public:
  // Limit of unread text. Text beyond it is lost, which is reported later.
  static constexpr std::size_t kMostHeld = 16u << 20;

  // Text that is still held in the destructor is lost: call flush() first. `row_is_open`: the last
  // row of the terminal has text of a rank, which ours must not follow.
  Console(os::EventLoop& loop, int fd, std::atomic<bool>* row_is_open = nullptr);

  void say(std::string text);  // from any thread
  // Calls `done` on the loop's thread when all that was said before is written.
  void flush(std::function<void()> done);
  // Why what was said is not all there; empty: it is. Of what was said before a flush() that is
  // done. On the loop's thread.
  std::string loss();

 private:
  int fd_;
  std::atomic<bool>* row_is_open_;  // none: not a terminal
  int broken_ = 0;                  // errno
  std::mutex mutex_;
  std::size_t held_ = 0;
  std::size_t lost_ = 0;      // since the last report
  std::size_t all_lost_ = 0;  // in all
  OutputWriter writer_;
};

}  // namespace hora::launcher
