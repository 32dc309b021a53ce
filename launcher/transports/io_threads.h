// SPDX-License-Identifier: Apache-2.0
// The threads of the transports: a few with an event loop each, where connections live, and some
// for calls that block.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "rendezvous/base/address.h"
#include "rendezvous/base/result.h"
#include "rendezvous/os/event_loop.h"

namespace hora::launcher {

// A host's connection lives on one of the loops.
class IoThreads {
 public:
  static Result<std::unique_ptr<IoThreads>> start(int count);
  ~IoThreads() { stop(); }  // however long it takes

  os::EventLoop& loop(int index) { return *threads_[static_cast<std::size_t>(index)].loop; }

  // Ends the loops after what was posted before, and waits for the threads as long as the longest
  // handler computes. False if one does nothing for `timeout` (a library waits for a key on a dead
  // file system, say): then what the threads use may never be destroyed, this object included.
  bool stop(std::chrono::milliseconds timeout = std::chrono::hours(24 * 365));

 private:
  struct Thread {
    std::unique_ptr<os::EventLoop> loop;
    std::thread thread;
  };
  IoThreads() = default;
  void run(os::EventLoop& loop);
  std::chrono::nanoseconds processor_time();
  bool wait_for_end(std::chrono::milliseconds timeout);

  std::vector<Thread> threads_;
  std::mutex mutex_;
  std::condition_variable one_ended_;
  std::size_t ended_ = 0;
};

// Runs calls that may block for tens of seconds and cannot be interrupted, such as the system's
// resolver. Nothing waits for its threads: one that is stuck when the transport ends goes on alone,
// and its answer is dropped.
class BlockingCalls {
 public:
  using Answer = std::function<void()>;
  using Question = std::function<Answer()>;
  using Failed = std::function<void(Error)>;

  explicit BlockingCalls(int most_threads);
  ~BlockingCalls() { close(); }
  BlockingCalls(const BlockingCalls&) = delete;
  BlockingCalls& operator=(const BlockingCalls&) = delete;

  // Runs `question` in one of the threads, and there what it returns, never after close(). `failed`
  // is called at once when there is no thread for it. Thread-safe.
  void ask(Question question, const Failed& failed);
  // Drops all questions, later ones included. Thread-safe.
  void close();

  // The addresses of a host. From the caller's thread where they are numeric.
  using Endpoints = std::function<void(Result<std::vector<Endpoint>>)>;
  void resolve(const std::string& host, std::uint16_t port, const Endpoints& answer);

 private:
  struct Shared;
  static void work(const std::shared_ptr<Shared>& shared);
  std::shared_ptr<Shared> shared_;
};

}  // namespace hora::launcher
