#include "launcher/transports/io_threads.h"

#include <signal.h>

#include <system_error>

namespace hora::launcher {

Result<std::unique_ptr<IoThreads>> IoThreads::start(int count) {
  std::unique_ptr<IoThreads> threads(new IoThreads);
  // Signals are the main thread's business; a thread inherits the mask of its creator.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, &before);
  Status status = Ok{};
  for (int i = 0; i < count && status; ++i) {
    auto loop = os::EventLoop::create();
    if (!loop) {
      status = std::move(loop).error();
      break;
    }
    Thread thread;
    thread.loop = *std::move(loop);
    try {
      thread.thread =
          std::thread([self = threads.get(), loop = thread.loop.get()] { self->run(*loop); });
    } catch (const std::system_error& error) {
      status = errno_error(error.code().value(), "starting a thread");
      break;
    }
    threads->threads_.push_back(std::move(thread));
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!status) return std::move(status).error();
  return threads;
}

IoThreads::~IoThreads() { stop(); }

void IoThreads::run(os::EventLoop& loop) {
  (void)loop.run();
  const std::lock_guard lock(mutex_);
  ++ended_;
  one_ended_.notify_all();
}

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
