// SPDX-License-Identifier: Apache-2.0
#include "launcher/transports/io_threads.h"

#include "rendezvous/os/service_thread.h"

namespace hora::launcher {

Result<std::unique_ptr<IoThreads>> IoThreads::start(int count) {
  std::unique_ptr<IoThreads> threads(new IoThreads);
  for (int i = 0; i < count; ++i) {
    auto loop = os::EventLoop::create();
    if (!loop) return std::move(loop).error();
    Thread thread;
    thread.loop = *std::move(loop);
    auto started = os::start_service_thread(
        "hora-io", [self = threads.get(), loop = thread.loop.get()] { self->run(*loop); });
    if (!started) return std::move(started).error();
    thread.thread = std::move(*started);
    threads->threads_.push_back(std::move(thread));
  }
  return threads;
}

IoThreads::~IoThreads() { stop(); }

// The count of ended loops is what stop() can wait for with a timeout; a join has none.
void IoThreads::run(os::EventLoop& loop) {
  (void)loop.run();
  const std::lock_guard lock(mutex_);
  ++ended_;
  one_ended_.notify_all();
}

// Returns false when a loop does not end in time: a thread that hangs in a system call must not
// keep the launcher from exiting. That thread is not joined then.
bool IoThreads::stop(std::chrono::milliseconds patience) {
  for (auto& thread : threads_) {
    thread.loop->post([loop = thread.loop.get()] { loop->stop(); });
  }
  {
    std::unique_lock lock(mutex_);
    if (!one_ended_.wait_for(lock, patience, [this] { return ended_ == threads_.size(); }))
      return false;
  }
  for (auto& thread : threads_) {
    if (thread.thread.joinable()) thread.thread.join();
  }
  return true;
}

}  // namespace hora::launcher
