// SPDX-License-Identifier: Apache-2.0
// Writes to descriptors that may block (a terminal under Ctrl-S, a slow pipe, a stuck file system)
// without ever blocking the event loop: one thread, one queue, in the order of submission.
// Consecutive texts for one descriptor are one write. The queue is bounded by the flow control of
// the agent protocol: what was written is reported back, and only then may the agents send more.
// The thread is started by the first text, so a job that prints nothing saves it, and the wake-ups
// that its start and its end would cost on a busy machine.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "rendezvous/os/event_loop.h"
#include "rendezvous/os/fd.h"

namespace hora::launcher {

class OutputWriter {
 public:
  struct Handlers {
    // On the loop's thread: `bytes` of rank output from `host` are done with.
    std::function<void(int host, std::size_t bytes)> on_written;
    // On the loop's thread, once per descriptor: writing to `fd` failed; it gets nothing more.
    std::function<void(int fd, int errnum)> on_broken;
  };

  // When the thread is woken for what was submitted. kAtOnce: any thread may submit. kAtEndOfTurn:
  // once per turn of the loop, whose thread alone submits; for the output of ranks, of which each
  // message would cost a wake-up.
  enum class Wake : std::uint8_t { kAtOnce, kAtEndOfTurn };

  OutputWriter(os::EventLoop& loop, Wake wake, Handlers handlers);
  // Stops at once; what is still queued is lost. Call flush() first for a clean end.
  ~OutputWriter();
  OutputWriter(const OutputWriter&) = delete;
  OutputWriter& operator=(const OutputWriter&) = delete;

  // Queues `text` for `fd`. `credit` bytes are reported to on_written(host) once it is written.
  void write(int fd, std::string text, int host, std::size_t credit);
  // After everything that was queued before: closes `file`, or, of a descriptor that stays open,
  // closes a duplicate. Either lets a file system that has put off writing report an error.
  void close(os::Fd file);
  void settle(int fd);  // nothing to do before anything was written
  // After everything that was queued before: `open`, on the writer's thread, gives the file that
  // `fd` is from then on. It stays what it is where that is none.
  void replace(int fd, std::function<os::Fd()> open);
  // Calls `done` on the loop's thread when all that was queued before is written.
  void flush(std::function<void()> done);
  // Something waits for a reader, or a disk.
  bool is_behind() const;

 private:
  struct Credit {
    int host;
    std::size_t bytes;
  };
  struct Item {
    int fd = -1;
    std::string text;
    std::vector<Credit> credits;
    std::function<void()> done;
    os::Fd to_close;
    bool settles = false;
    std::function<os::Fd()> open = {};
  };

  void start();  // with the mutex held
  void run();
  void queue(Item item);
  bool append(const Item& item);
  void write_item(const Item& item);
  void close_item(Item& item);
  void replace_file(Item& item);
  bool is_broken(int fd) const;
  void report_broken(int fd, int errnum);

  os::EventLoop& loop_;
  Handlers handlers_;
  const Wake wake_;
  bool wakes_at_end_ = false;  // of this turn
  // Callbacks posted to the loop check this first.
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  mutable std::mutex mutex_;
  std::condition_variable ready_;
  std::condition_variable exited_;
  std::deque<Item> queue_;
  bool is_writing_ = false;
  int failed_starts_ = 0;
  bool stopping_ = false;
  bool has_exited_ = false;
  std::vector<int> broken_;  // the thread's own
  std::thread thread_;
};

}  // namespace hora::launcher
