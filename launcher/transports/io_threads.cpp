// SPDX-License-Identifier: Apache-2.0
#include "launcher/transports/io_threads.h"

#include <pthread.h>
#include <time.h>

#include <utility>

#include "rendezvous/os/threads.h"

namespace hora::launcher {

namespace {

// A thread that has used less than this of the processor in the meantime is stuck, not slow.
constexpr std::chrono::milliseconds kLeastWork{1};
constexpr int kMostExtensions = 30;

}  // namespace

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

// The processor time that the running threads have used.
std::chrono::nanoseconds IoThreads::processor_time() {
  std::chrono::nanoseconds used{0};
  for (auto& thread : threads_) {
    clockid_t clock{};
    timespec time{};
    if (!thread.thread.joinable()) continue;
    if (::pthread_getcpuclockid(thread.thread.native_handle(), &clock) != 0) continue;  // has ended
    if (::clock_gettime(clock, &time) != 0) continue;
    used += std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
  }
  return used;
}

// Returns false when a loop does not end in time: a thread that hangs in a system call must not
// keep the launcher from exiting. That thread is not joined then. One that computes (a handshake on
// a busy machine, say) comes back, and would find what it uses torn down by exit().
bool IoThreads::stop(std::chrono::milliseconds patience) {
  for (auto& thread : threads_) {
    thread.loop->post([loop = thread.loop.get()] { loop->stop(); });
  }
  auto used = processor_time();
  for (int extensions = 0; !wait_for_end(patience); ++extensions) {
    const auto before = std::exchange(used, processor_time());
    if (extensions == kMostExtensions || std::chrono::abs(used - before) < kLeastWork) return false;
  }
  for (auto& thread : threads_) {
    if (thread.thread.joinable()) thread.thread.join();
  }
  return true;
}

bool IoThreads::wait_for_end(std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  return one_ended_.wait_for(lock, patience, [this] { return ended_ == threads_.size(); });
}

}  // namespace hora::launcher
