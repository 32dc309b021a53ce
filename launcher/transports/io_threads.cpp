// SPDX-License-Identifier: Apache-2.0
#include "launcher/transports/io_threads.h"

#include <pthread.h>
#include <time.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>

#include "rendezvous/net/addresses.h"
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

// The count of ended loops is what stop() can wait for with a timeout; a join has none.
void IoThreads::run(os::EventLoop& loop) {
  (void)loop.run();
  const std::lock_guard lock(mutex_);
  ++ended_;
  one_ended_.notify_all();
}

// What the threads that run have used of the processor.
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

// A thread that hangs in a system call must not keep the launcher from exiting, and is not joined.
// One that computes (a handshake on a busy machine, say) comes back, and would then use what exit()
// has destroyed.
bool IoThreads::stop(std::chrono::milliseconds timeout) {
  for (auto& thread : threads_) {
    thread.loop->post([loop = thread.loop.get()] { loop->stop(); });
  }
  auto used = processor_time();
  for (int extensions = 0; !wait_for_end(timeout); ++extensions) {
    const auto before = std::exchange(used, processor_time());
    if (extensions == kMostExtensions || std::chrono::abs(used - before) < kLeastWork) return false;
  }
  for (auto& thread : threads_) {
    if (thread.thread.joinable()) thread.thread.join();
  }
  return true;
}

bool IoThreads::wait_for_end(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  return one_ended_.wait_for(lock, timeout, [this] { return ended_ == threads_.size(); });
}

// --- calls that block ----------------------------------------------------------------------------

// The detached threads share its ownership. One that returns after close() finds it closed and
// ends.
struct BlockingCalls::Shared {
  std::mutex mutex;  // held while answers are given, so that none comes after close
  std::condition_variable wake_up;
  std::deque<Question> questions;
  int most_threads = 0;
  int threads = 0;
  int idle = 0;
  bool closed = false;
};

BlockingCalls::BlockingCalls(int most_threads) : shared_(std::make_shared<Shared>()) {
  shared_->most_threads = most_threads;
}

void BlockingCalls::close() {
  std::lock_guard lock(shared_->mutex);
  shared_->closed = true;
  shared_->questions.clear();
  shared_->wake_up.notify_all();
}

void BlockingCalls::work(const std::shared_ptr<Shared>& shared) {
  std::unique_lock lock(shared->mutex);
  while (true) {
    ++shared->idle;
    shared->wake_up.wait(lock, [&] { return shared->closed || !shared->questions.empty(); });
    --shared->idle;
    if (shared->closed) return;
    const Question question = std::move(shared->questions.front());
    shared->questions.pop_front();
    lock.unlock();
    const Answer answer = question();
    lock.lock();
    if (!shared->closed) answer();
  }
}

void BlockingCalls::ask(Question question, const Failed& failed) {
  std::lock_guard lock(shared_->mutex);
  if (shared_->closed) return;
  shared_->questions.push_back(std::move(question));
  // An idle thread takes the question, or all threads are busy and it stays in the queue.
  if (static_cast<int>(shared_->questions.size()) <= shared_->idle ||
      shared_->threads == shared_->most_threads) {
    shared_->wake_up.notify_one();
    return;
  }
  // Where one thread exists it answers every question in the end, so do not wait for another one.
  const auto timeout = shared_->threads == 0 ? os::kThreadTimeout : std::chrono::seconds(0);
  auto thread = os::start_service_thread(
      "hora-ask", [shared = shared_] { work(shared); }, timeout);
  if (thread) {
    thread->detach();
    ++shared_->threads;
  } else if (shared_->threads == 0) {
    shared_->questions.pop_back();
    failed(std::move(thread).error());
  }
}

// Numeric addresses never need a thread or the lock.
void BlockingCalls::resolve(const std::string& host, std::uint16_t port, const Endpoints& answer) {
  if (auto numeric = parse_ip_address(host)) {
    return answer(std::vector<Endpoint>{{*numeric, port}});
  }
  ask(
      [host, port, answer]() -> Answer {
        return [answer, endpoints = net::resolve_host(host, port)] { answer(endpoints); };
      },
      [answer](const Error& error) { answer(error); });
}

}  // namespace hora::launcher
