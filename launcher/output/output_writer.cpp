// SPDX-License-Identifier: Apache-2.0
// Writes on a thread of its own: a reader that pauses blocks this thread and never the launcher's
// loop. The amount that can wait here is bounded by the output credit of the hosts, which is
// returned only when bytes have been written.
#include "launcher/output/output_writer.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <optional>
#include <system_error>
#include <utility>

#include "rendezvous/os/threads.h"

namespace hora::launcher {

namespace {

// Hosts get their credit back when a write is done, so no write is much larger than a window.
constexpr std::size_t kMostInOneWrite = 256 * 1024;

// While the kernel has no memory for a write, or a thread: a busy machine has some again soon.
constexpr std::chrono::seconds kMemoryTimeout{60};
constexpr std::chrono::milliseconds kTryAgain{100};

// Wakes the thread out of a write() that blocks; the handler does nothing.
int wake_signal() { return SIGRTMIN; }

void install_wake_signal() {
  struct sigaction action {};
  action.sa_handler = [](int) {};
  sigemptyset(&action.sa_mask);
  action.sa_flags = 0;  // no SA_RESTART: write() must return
  ::sigaction(wake_signal(), &action, nullptr);
}

void let_in_wake_signal() {
  sigset_t wake;
  sigemptyset(&wake);
  sigaddset(&wake, wake_signal());
  ::pthread_sigmask(SIG_UNBLOCK, &wake, nullptr);
}

}  // namespace

OutputWriter::OutputWriter(os::EventLoop& loop, Wake wake, Handlers handlers)
    : loop_(loop), handlers_(std::move(handlers)), wake_(wake) {}

void OutputWriter::start() {
  install_wake_signal();
  auto thread = os::start_service_thread("hora-output", [this] {
    let_in_wake_signal();
    run();
  });
  if (thread) {
    thread_ = std::move(*thread);
    return;
  }
  // EAGAIN: the machine may have memory for a thread again soon; the limit of the address space
  // (ENOMEM) stays. Without a thread nothing can be printed: the program ends (os/limits.h).
  if (thread.error().errnum != EAGAIN || ++failed_starts_ > kMemoryTimeout / kTryAgain) {
    throw std::system_error(EAGAIN, std::generic_category(), thread.error().message);
  }
  loop_.post([this, alive = std::weak_ptr(alive_)] {
    if (alive.expired()) return;
    loop_.call_after(kTryAgain, [this, alive] {
      if (alive.expired()) return;
      const std::lock_guard lock(mutex_);
      start();
    });
  });
}

OutputWriter::~OutputWriter() {
  std::unique_lock lock(mutex_);
  if (!thread_.joinable()) return;
  stopping_ = true;
  ready_.notify_all();
  // The signal may come just before the thread blocks, hence again until it has left.
  while (!has_exited_) {
    ::pthread_kill(thread_.native_handle(), wake_signal());
    exited_.wait_for(lock, std::chrono::milliseconds(5));
  }
  lock.unlock();
  thread_.join();
}

// Call it with the mutex held. The item becomes part of the last one, if that is for the same
// descriptor.
bool OutputWriter::append(const Item& item) {
  if (queue_.empty() || item.text.empty()) return false;
  Item& last = queue_.back();
  if (last.fd != item.fd || last.to_close.valid() || last.settles || last.done || last.open)
    return false;
  if (last.text.size() + item.text.size() > kMostInOneWrite) return false;
  // The credits come back together: a write is done when all of it is.
  last.text += item.text;
  last.credits.insert(last.credits.end(), item.credits.begin(), item.credits.end());
  return true;
}

void OutputWriter::queue(Item item) {
  {
    std::lock_guard lock(mutex_);
    if (!thread_.joinable() && queue_.empty()) {
      const bool is_work = !item.text.empty() || !item.credits.empty() || item.to_close.valid();
      if (!is_work) {
        if (item.done) loop_.post(std::move(item.done));
        return;
      }
      start();
    }
    if (!append(item)) queue_.push_back(std::move(item));
  }
  if (wake_ == Wake::kAtOnce) return ready_.notify_one();
  if (std::exchange(wakes_at_end_, true)) return;
  loop_.defer([this, alive = std::weak_ptr(alive_)] {
    if (alive.expired()) return;
    wakes_at_end_ = false;
    ready_.notify_one();
  });
}

void OutputWriter::write(int fd, std::string text, int host, std::size_t credit) {
  std::vector<Credit> credits;
  if (credit > 0) credits.push_back({host, credit});
  queue({fd, std::move(text), std::move(credits), {}, {}, false});
}

void OutputWriter::close(os::Fd file) {
  const int fd = file.get();
  queue({fd, {}, {}, {}, std::move(file), false});
}

void OutputWriter::settle(int fd) { queue({fd, {}, {}, {}, {}, true}); }

void OutputWriter::replace(int fd, std::function<os::Fd()> open) {
  queue({fd, {}, {}, {}, {}, true, std::move(open)});
}

void OutputWriter::flush(std::function<void()> done) {
  queue({-1, {}, {}, std::move(done), {}, false});
}

bool OutputWriter::is_behind() const {
  const std::lock_guard lock(mutex_);
  return is_writing_ || !queue_.empty();
}

void OutputWriter::run() {
  std::deque<Item> batch;
  while (true) {
    {
      std::unique_lock lock(mutex_);
      is_writing_ = false;
      ready_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      if (stopping_) break;
      is_writing_ = true;
      // The lock is held for the swap only, so queue() never waits for a write.
      batch.swap(queue_);
    }
    for (Item& item : batch) {
      write_item(item);
      if (item.to_close.valid() || item.settles) close_item(item);
      if (item.open) replace_file(item);
      if (item.credits.empty() && !item.done) continue;
      // Handlers run on the loop's thread, in the order of the items.
      loop_.post([this, credits = std::move(item.credits), done = std::move(item.done)] {
        for (const Credit& credit : credits) handlers_.on_written(credit.host, credit.bytes);
        if (done) done();
      });
    }
    batch.clear();
  }
  std::lock_guard lock(mutex_);
  has_exited_ = true;
  exited_.notify_all();
}

void OutputWriter::write_item(const Item& item) {
  if (item.text.empty() || is_broken(item.fd)) return;
  std::size_t at = 0;
  constexpr auto kNever = Clock::time_point::max();
  auto give_up_at = kNever;  // while memory is short
  while (at < item.text.size()) {
    const ssize_t wrote = ::write(item.fd, item.text.data() + at, item.text.size() - at);
    if (wrote >= 0) {
      at += static_cast<std::size_t>(wrote);
      give_up_at = kNever;
      continue;
    }
    const int error = errno;
    if (error == EINTR) {
      std::lock_guard lock(mutex_);
      if (stopping_) return;
      continue;
    }
    // EAGAIN: O_NONBLOCK was set by another process that shares the description.
    const bool is_short_of_memory = error == ENOMEM || error == ENOBUFS;
    if (is_short_of_memory && give_up_at == kNever) give_up_at = Clock::now() + kMemoryTimeout;
    if (error != EAGAIN && !(is_short_of_memory && Clock::now() < give_up_at)) {
      return report_broken(item.fd, error);
    }
    pollfd poller{is_short_of_memory ? -1 : item.fd, POLLOUT, 0};
    (void)::poll(&poller, 1, is_short_of_memory ? static_cast<int>(kTryAgain.count()) : 1000);
    std::lock_guard lock(mutex_);
    if (stopping_) return;
  }
}

void OutputWriter::close_item(Item& item) {
  // A duplicate is closed instead of the console itself: close() reports what a file system (NFS, a
  // quota) refuses late, and the descriptor stays usable.
  if (item.settles) item.to_close = os::Fd(::fcntl(item.fd, F_DUPFD_CLOEXEC, 0));
  const int error = item.to_close.close();
  // One report per descriptor.
  if (error != 0 && !is_broken(item.fd)) report_broken(item.fd, error);
}

// One that takes nothing any more keeps what it has.
void OutputWriter::replace_file(Item& item) {
  if (is_broken(item.fd)) return;
  const os::Fd next = item.open();
  if (next.valid()) (void)::dup3(next.get(), item.fd, O_CLOEXEC);
}

bool OutputWriter::is_broken(int fd) const {
  return std::find(broken_.begin(), broken_.end(), fd) != broken_.end();
}

void OutputWriter::report_broken(int fd, int errnum) {
  broken_.push_back(fd);
  loop_.post([this, fd, errnum] { handlers_.on_broken(fd, errnum); });
}

}  // namespace hora::launcher
