#include "rendezvous/os/event_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace hora::os {

Result<std::unique_ptr<EventLoop>> EventLoop::create() {
  Fd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) return errno_error(errno, "creating an epoll instance");
  Fd wake_up(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_up.valid()) return errno_error(errno, "creating an eventfd");
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = 0;  // generation 0 is the wake-up
  if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, wake_up.get(), &event) != 0) {
    return errno_error(errno, "watching an eventfd");
  }
  return std::unique_ptr<EventLoop>(new EventLoop(std::move(epoll), std::move(wake_up)));
}

EventLoop::EventLoop(Fd epoll, Fd wake_up)
    : epoll_(std::move(epoll)), wake_up_(std::move(wake_up)) {}
EventLoop::~EventLoop() = default;

namespace {

// The kernel gives back both the fd and the generation of its watch, so that an event for an fd
// that was closed and reused within one batch is told apart.
std::uint64_t pack(int fd, std::uint64_t generation) {
  return (generation << 32) | static_cast<std::uint32_t>(fd);
}

}  // namespace

Status EventLoop::watch(int fd, std::uint32_t events, IoHandler handler) {
  const std::uint64_t generation = next_generation_;
  next_generation_ = next_generation_ % 0xffffffffu + 1;
  epoll_event event{};
  event.events = events;
  event.data.u64 = pack(fd, generation);
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    return errno_error(errno, "watching a file descriptor");
  }
  watches_[fd] = {generation, std::make_shared<IoHandler>(std::move(handler))};
  return Ok{};
}

Status EventLoop::change(int fd, std::uint32_t events) {
  auto found = watches_.find(fd);
  if (found == watches_.end()) return make_error(ErrorCode::kNotFound, "fd is not watched");
  epoll_event event{};
  event.events = events;
  event.data.u64 = pack(fd, found->second.generation);
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event) != 0) {
    return errno_error(errno, "changing the watch of a file descriptor");
  }
  return Ok{};
}

void EventLoop::unwatch(int fd) {
  if (watches_.erase(fd) == 0) return;
  // Fails only when the fd is closed already, and then the kernel has forgotten it too.
  (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

EventLoop::TimerId EventLoop::call_at(Clock::time_point when, TimerHandler handler) {
  const TimerId id = next_timer_++;
  timers_.emplace(when, std::make_pair(id, std::move(handler)));
  return id;
}

EventLoop::TimerId EventLoop::call_after(Clock::duration delay, TimerHandler handler) {
  return call_at(Clock::now() + delay, std::move(handler));
}

void EventLoop::cancel(TimerId id) {
  auto found = std::find_if(timers_.begin(), timers_.end(),
                            [id](const auto& timer) { return timer.second.first == id; });
  if (found != timers_.end()) timers_.erase(found);
}

void EventLoop::post(std::function<void()> task) {
  {
    std::lock_guard lock(posted_mutex_);
    posted_.push_back(std::move(task));
  }
  const std::uint64_t one = 1;
  // A full counter (EAGAIN) wakes the loop just as well.
  [[maybe_unused]] ssize_t written = ::write(wake_up_.get(), &one, sizeof one);
}

void EventLoop::stop() { stopped_ = true; }

int EventLoop::next_timeout_ms() const {
  if (timers_.empty()) return -1;
  const auto left = timers_.begin()->first - Clock::now();
  if (left <= Clock::duration::zero()) return 0;
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
  return static_cast<int>(std::min<long long>(ms, 60'000));
}

void EventLoop::run_due_timers() {
  while (!stopped_ && !timers_.empty() && timers_.begin()->first <= polled_at_) {
    TimerHandler handler = std::move(timers_.begin()->second.second);
    timers_.erase(timers_.begin());
    handler();
  }
}

void EventLoop::run_posted() {
  std::vector<std::function<void()>> tasks;
  {
    std::lock_guard lock(posted_mutex_);
    tasks.swap(posted_);
  }
  for (auto& task : tasks) task();
}

Status EventLoop::run() {
  stopped_ = false;
  std::array<epoll_event, 256> events;
  while (!stopped_) {
    const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                                   next_timeout_ms());
    if (count < 0) {
      if (errno == EINTR) continue;
      return errno_error(errno, "waiting for events");
    }
    polled_at_ = Clock::now();
    for (int i = 0; i < count && !stopped_; ++i) {
      const std::uint64_t generation = events[i].data.u64 >> 32;
      if (generation == 0) {
        std::uint64_t value;
        [[maybe_unused]] ssize_t got = ::read(wake_up_.get(), &value, sizeof value);
        run_posted();
        continue;
      }
      const int fd = static_cast<int>(events[i].data.u64 & 0xffffffffu);
      auto found = watches_.find(fd);
      if (found == watches_.end() || found->second.generation != generation) continue;
      auto handler = found->second.handler;  // keeps it alive if it unwatches itself
      (*handler)(events[i].events);
    }
    if (!stopped_) run_due_timers();
  }
  return Ok{};
}

}  // namespace hora::os
