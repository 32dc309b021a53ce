#include "collectives/runtime/watchdog.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>

#include "rendezvous/os/service_thread.h"

namespace hora::collectives {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLookEvery{250};
// A watchdog has nothing else to do than to answer; so much is for a machine that has.
constexpr milliseconds kAnswerPatience{1500};
// A watchdog that looks so late was stopped itself, or its whole job was.
constexpr milliseconds kOverslept{1000};

}  // namespace

Watchdog::Watchdog(std::vector<int> fds, OnBreak on_break, std::optional<Watch> watch)
    : fds_(std::move(fds)),
      on_break_(std::move(on_break)),
      watch_(std::move(watch)),
      next_look_(Clock::now()),
      stop_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

Result<std::unique_ptr<Watchdog>> Watchdog::post(std::vector<int> fds, OnBreak on_break,
                                                 std::optional<Watch> watch) {
  std::unique_ptr<Watchdog> self(
      new Watchdog(std::move(fds), std::move(on_break), std::move(watch)));
  if (!self->stop_.valid()) return errno_error(errno, "creating an eventfd");
  auto thread =
      os::start_service_thread("hora-watchdog", [watchdog = self.get()] { watchdog->run(); });
  if (!thread) return std::move(thread).error();
  self->thread_ = std::move(*thread);
  return self;
}

void Watchdog::stop() {
  if (!thread_.joinable()) return;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t ignored = ::write(stop_.get(), &one, sizeof one);
  thread_.join();
}

void Watchdog::run() {
  std::vector<pollfd> fds{{stop_.get(), POLLIN, 0}, {watch_ ? watch_->signs.fd() : -1, POLLIN, 0}};
  for (int fd : fds_) fds.push_back({fd, POLLRDHUP, 0});
  while (true) {
    if (::poll(fds.data(), fds.size(), watch_ ? static_cast<int>(kLookEvery.count()) : -1) < 0) {
      if (errno == EINTR) continue;
      return;
    }
    if (fds[0].revents != 0) return;
    for (std::size_t i = 2; i < fds.size(); ++i) {
      if (fds[i].revents != 0) return on_break_({});
    }
    if (!watch_) continue;
    const auto now = Clock::now();
    watch_->signs.hear(now, waits_in_.load(std::memory_order_relaxed));
    if (now < next_look_) continue;
    if (const std::vector<int> silent = look(now); !silent.empty()) return on_break_(silent);
    next_look_ = now + kLookEvery;
  }
}

std::vector<int> Watchdog::look(Clock::time_point now) {
  Heartbeat& signs = watch_->signs;
  if (now - next_look_ > kOverslept) signs.begin_anew(now);
  signs.ask();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    silent_ = signs.silent_since(now - kAnswerPatience);
  }
  std::vector<int> silent = signs.silent_since(now - watch_->limit - kAnswerPatience);
  std::erase_if(silent, [&](int rank) { return !is_waited_for(rank, now); });
  return silent;
}

// Rank 0 knows in which sets all others wait; those miss rank 0, whatever they wait for.
bool Watchdog::is_waited_for(int rank, Clock::time_point now) const {
  const std::int32_t own = waits_in_.load(std::memory_order_relaxed);
  if (watch_->rank != 0) return own != Heartbeat::kNowhere;
  const auto has = [&](std::int32_t set) {
    const SetTable::Ranks ranks = watch_->sets->ranks(set);
    return ranks != nullptr && std::count(ranks->begin(), ranks->end(), rank) > 0;
  };
  const std::vector<std::int32_t> others = watch_->signs.waited_in(now - kAnswerPatience);
  return has(own) || std::any_of(others.begin(), others.end(), has);
}

}  // namespace hora::collectives
