#include "collectives/control/hosts_channel.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace hora::collectives {

struct alignas(128) HostsChannel::Sleeper {
  std::atomic<std::uint32_t> asleep;  // 1: its pipe is to be written into
};

namespace {

// poll() that counts in nanoseconds.
int wait_for(pollfd* fds, nfds_t count, Deadline deadline) {
  if (deadline == Deadline::max()) return ::ppoll(fds, count, nullptr, nullptr);
  const auto left = std::max(deadline - Clock::now(), Clock::duration::zero());
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(left).count();
  const timespec relative{static_cast<time_t>(ns / 1'000'000'000),
                          static_cast<long>(ns % 1'000'000'000)};
  return ::ppoll(fds, count, &relative, nullptr);
}

}  // namespace

std::size_t HostsChannel::memory_bytes(const LeaderPlan& plan) {
  return plan.here().size() * sizeof(Sleeper) + LeaderFastPath::memory_bytes(plan);
}

HostsChannel::HostsChannel(HostsParts parts)
    : owner_(std::move(parts.links)),
      links_(owner_->sockets()),
      segment_(std::move(parts.segment)),
      sleepers_(static_cast<Sleeper*>(segment_.data())),
      place_(parts.plan.place),
      doorbells_(std::move(parts.doorbells)),
      thread_doorbell_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      duty_(epoll_create1(EPOLL_CLOEXEC)) {
  spinner_.enable(parts.spin);
  fast_path_.emplace(
      std::move(parts.plan), sleepers_ + doorbells_.size(), [this](int place) { call(place); },
      [this](int host, std::string_view bytes) { links_->send(leader_peer(host), bytes); });
  links_->watch_doorbell(std::move(parts.doorbell));
  epoll_event event{};
  event.events = EPOLLIN;
  epoll_ctl(duty_.get(), EPOLL_CTL_ADD, links_->waiting_fd(), &event);
}

// Wakes the rank if it sleeps. Either it sees what was written before, when it looks once more
// before it sleeps, or we see that it sleeps.
void HostsChannel::call(int place) const {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  std::atomic<std::uint32_t>& asleep = sleepers_[place].asleep;
  if (asleep.load(std::memory_order_relaxed) == 0) return;
  if (asleep.exchange(0, std::memory_order_acq_rel) == 0) return;
  // EAGAIN: the pipe is full of rings already. EPIPE cannot come: our end is for reading, too.
  [[maybe_unused]] const ssize_t ignored =
      ::write(doorbells_[static_cast<std::size_t>(place)].get(), "!", 1);
}

void HostsChannel::sort(std::vector<Incoming> came, std::vector<Incoming>& messages) {
  for (Incoming& each : came) {
    if (each.rank < kFirstLeader) {
      messages.push_back(std::move(each));
      continue;
    }
    const int host = each.rank - kFirstLeader;
    if (each.gone) {
      fast_path_->lost_leader(host, std::move(each.bytes));
    } else {
      fast_path_->arrived(host, std::move(each.bytes));
    }
  }
}

std::vector<Incoming> HostsChannel::poll(Deadline deadline) {
  std::vector<Incoming> messages;
  while (true) {
    const bool woken =
        woken_.load(std::memory_order_relaxed) && woken_.exchange(false, std::memory_order_acq_rel);
    sort(links_->poll(kNoWait), messages);
    if (woken || !messages.empty() || deadline == kNoWait || fast_path_->has_work())
      return messages;
    if (Clock::now() >= deadline) return messages;
    if (!watch() && park(waiter_)) sleep(waiter_, 0, deadline);
    unpark();
  }
}

void HostsChannel::wake() {
  woken_.store(true, std::memory_order_release);
  links_->wake();
}

bool HostsChannel::something_came() {
  return fast_path_->has_work() || woken_.load(std::memory_order_acquire);
}

bool HostsChannel::sockets_are_readable() const {
  pollfd sockets{links_->waiting_fd(), POLLIN, 0};
  return ::poll(&sockets, 1, 0) > 0;
}

bool HostsChannel::watch() {
  return spinner_.until([this] { return something_came() || sockets_are_readable(); });
}

bool HostsChannel::park(Waiter) {
  std::atomic<std::uint32_t>& asleep = sleepers_[place_].asleep;
  asleep.store(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!something_came()) return true;
  unpark();
  return false;
}

void HostsChannel::unpark() { sleepers_[place_].asleep.store(0, std::memory_order_relaxed); }

// The caller looks at the sockets while it sits; the thread, by way of duty_, when nobody else
// does.
void HostsChannel::sleep(Waiter waiter, std::uint32_t, Deadline deadline) {
  if (waiter == Waiter::kCaller) {
    pollfd sockets{links_->waiting_fd(), POLLIN, 0};
    wait_for(&sockets, 1, deadline);
    return;
  }
  pollfd both[2] = {{thread_doorbell_.get(), POLLIN, 0}, {duty_.get(), POLLIN, 0}};
  wait_for(both, 2, deadline);
  if (both[0].revents == 0) return;
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t ignored = ::read(thread_doorbell_.get(), &count, sizeof count);
}

void HostsChannel::ring(Waiter waiter) {
  if (waiter == Waiter::kCaller) return links_->wake();
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t ignored = ::write(thread_doorbell_.get(), &one, sizeof one);
}

void HostsChannel::set_driver(Waiter waiter) {
  if (waiter == waiter_) return;
  waiter_ = waiter;
  epoll_event event{};
  if (waiter == Waiter::kThread) event.events = EPOLLIN;
  epoll_ctl(duty_.get(), EPOLL_CTL_MOD, links_->waiting_fd(), &event);
}

}  // namespace hora::collectives
