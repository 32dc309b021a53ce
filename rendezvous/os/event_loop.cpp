// SPDX-License-Identifier: Apache-2.0
// One turn: poll, then all normal handlers, due timers, and a batch of background handlers. The
// background has an epoll instance of its own that also watches the normal one, so a quiet loop
// needs one system call per turn.
#include "rendezvous/os/event_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <span>
#include <utility>

#include "rendezvous/os/time_until.h"

namespace hora::os {

namespace {

// The kernel's data for the loop's own descriptors. A watch has a larger number: its generation is
// above these 32 bits.
constexpr std::uint64_t kWakeUp = 0;
constexpr std::uint64_t kNormal = 1;  // in the background's epoll: something in the other is ready

// How many background handlers run before everything else is looked at again.
constexpr std::size_t kBackgroundBatch = 64;

// The kernel gives back both the fd and the generation of its watch, to recognise an event for an
// fd that was closed and reused within one batch.
std::uint64_t pack(int fd, std::uint64_t generation) {
  return (generation << 32) | static_cast<std::uint32_t>(fd);
}

}  // namespace

// The room for events is kept from turn to turn: to clear it for ten thousand descriptors takes
// longer than to handle the one that is ready.
struct EventLoop::Ready {
  std::vector<epoll_event> room;
  std::size_t count = 0;

  void make_room(std::size_t most) {
    if (room.size() < most) room.resize(most);
    count = 0;
  }
  // False if a signal interrupted it.
  Result<bool> wait(int epoll, std::size_t most, int timeout_ms) {
    const int got = ::epoll_wait(epoll, room.data(), static_cast<int>(most), timeout_ms);
    if (got < 0 && errno != EINTR) return errno_error(errno, "waiting for events");
    count = got < 0 ? 0 : static_cast<std::size_t>(got);
    return got >= 0;
  }
  std::span<const epoll_event> events() const { return {room.data(), count}; }
};

Result<std::unique_ptr<EventLoop>> EventLoop::create() {
  Fd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) return errno_error(errno, "creating an epoll instance");
  Fd wake_up(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_up.valid()) return errno_error(errno, "creating an eventfd");
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kWakeUp;
  if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, wake_up.get(), &event) != 0) {
    return errno_error(errno, "watching an eventfd");
  }
  return std::unique_ptr<EventLoop>(new EventLoop(std::move(epoll), std::move(wake_up)));
}

EventLoop::EventLoop(Fd epoll, Fd wake_up)
    : epoll_(std::move(epoll)), wake_up_(std::move(wake_up)) {}
EventLoop::~EventLoop() = default;

Status EventLoop::open_background() {
  Fd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) return errno_error(errno, "creating an epoll instance");
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kNormal;
  if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, epoll_.get(), &event) != 0) {
    return errno_error(errno, "watching an epoll instance");
  }
  background_ = std::move(epoll);
  return Ok{};
}

Status EventLoop::watch(int fd, std::uint32_t events, IoHandler handler, Priority priority) {
  const bool background = priority == Priority::kBackground;
  if (background && !background_.valid()) HORA_TRY(open_background());
  const int epoll = background ? background_.get() : epoll_.get();
  const std::uint64_t generation = next_generation_;
  next_generation_ = next_generation_ % 0xffffffffu + 1;
  epoll_event event{};
  event.events = events;
  event.data.u64 = pack(fd, generation);
  if (::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0) {
    return errno_error(errno, "watching a file descriptor");
  }
  // Shared, so that a handler can unwatch itself while it runs.
  watches_[fd] = {generation, std::make_shared<IoHandler>(std::move(handler)), epoll};
  if (!background) ++normal_watches_;
  return Ok{};
}

Status EventLoop::change(int fd, std::uint32_t events) {
  auto found = watches_.find(fd);
  if (found == watches_.end()) return make_error(ErrorCode::kNotFound, "fd is not watched");
  epoll_event event{};
  event.events = events;
  event.data.u64 = pack(fd, found->second.generation);
  if (::epoll_ctl(found->second.epoll, EPOLL_CTL_MOD, fd, &event) != 0) {
    return errno_error(errno, "changing the watch of a file descriptor");
  }
  return Ok{};
}

void EventLoop::unwatch(int fd) {
  const auto found = watches_.find(fd);
  if (found == watches_.end()) return;
  // Fails only when the fd is closed already, and then the kernel has forgotten it too.
  (void)::epoll_ctl(found->second.epoll, EPOLL_CTL_DEL, fd, nullptr);
  if (found->second.epoll == epoll_.get()) --normal_watches_;
  watches_.erase(found);
}

EventLoop::TimerId EventLoop::call_at(Clock::time_point when, TimerHandler handler) {
  const TimerId id = next_timer_++;
  timer_of_[id] = timers_.emplace(when, std::make_pair(id, std::move(handler)));
  return id;
}

EventLoop::TimerId EventLoop::call_after(Clock::duration delay, TimerHandler handler) {
  return call_at(Clock::now() + delay, std::move(handler));
}

void EventLoop::cancel(TimerId id) {
  const auto found = timer_of_.find(id);
  if (found == timer_of_.end()) return;
  timers_.erase(found->second);
  timer_of_.erase(found);
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
  return timers_.empty() ? -1 : milliseconds_until(timers_.begin()->first);
}

void EventLoop::run_due_timers() {
  while (!stopped_ && !timers_.empty() && timers_.begin()->first <= polled_at_) {
    // Removed before it runs: the handler may set or cancel timers. Timers that become due
    // meanwhile wait for the next turn (polled_at_), so that they cannot starve descriptors.
    TimerHandler handler = std::move(timers_.begin()->second.second);
    timer_of_.erase(timers_.begin()->second.first);
    timers_.erase(timers_.begin());
    handler();
  }
}

void EventLoop::run_posted() {
  std::vector<std::function<void()>> tasks;
  {
    std::lock_guard lock(posted_mutex_);
    // Run outside of the lock: a task may post another one, which then runs in the next turn.
    tasks.swap(posted_);
  }
  for (auto& task : tasks) task();
}

// A stopped loop runs them, too: the handler that stopped it had asked for them.
void EventLoop::run_deferred() {
  while (!deferred_.empty()) {
    const auto tasks = std::exchange(deferred_, {});
    for (const auto& task : tasks) task();
  }
}

void EventLoop::dispatch(const epoll_event& event) {
  if (event.data.u64 == kNormal) return;
  if (event.data.u64 == kWakeUp) {
    std::uint64_t value;
    [[maybe_unused]] ssize_t got = ::read(wake_up_.get(), &value, sizeof value);
    return run_posted();
  }
  const auto found = watches_.find(static_cast<int>(event.data.u64 & 0xffffffffU));
  if (found == watches_.end() || found->second.generation != event.data.u64 >> 32) return;
  const auto handler = found->second.handler;  // keeps it alive if it unwatches itself
  (*handler)(event.events);
}

// Fills `normal` with all ready normal events and `background` with one batch of background events.
// False if a signal interrupted it.
Result<bool> EventLoop::poll(Ready& normal, Ready& background) {
  // Room for everything that can be ready, and the wake-up: no normal event waits for a later turn.
  const std::size_t most = normal_watches_ + 1;
  normal.make_room(most);
  background.make_room(kBackgroundBatch);
  int timeout = next_timeout_ms();
  bool look = true;
  if (background_.valid()) {
    auto waited = background.wait(background_.get(), kBackgroundBatch, timeout);
    if (!waited || !*waited) return waited;
    // A full batch may hide a normal event after it.
    look = background.count == kBackgroundBatch;
    for (const epoll_event& event : background.events()) look |= event.data.u64 == kNormal;
    // The first wait was the wait.
    timeout = 0;
  }
  if (look) {
    auto waited = normal.wait(epoll_.get(), most, timeout);
    if (!waited || !*waited) return waited;
  }
  polled_at_ = Clock::now();
  return true;
}

Status EventLoop::run() {
  stopped_ = false;
  Ready normal;
  Ready background;
  const auto dispatch_all = [this](const Ready& ready) {
    for (const epoll_event& event : ready.events()) {
      if (!stopped_) dispatch(event);
    }
  };
  run_deferred();  // of what was done before the loop ran
  while (!stopped_) {
    const auto polled = poll(normal, background);
    if (!polled) return polled.error();
    if (!*polled) continue;
    dispatch_all(normal);
    if (!stopped_) run_due_timers();
    dispatch_all(background);
    run_deferred();
  }
  return Ok{};
}

}  // namespace hora::os
