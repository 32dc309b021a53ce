// SPDX-License-Identifier: Apache-2.0
// Shared memory of a host: one Sleeper per rank, then the fast path's memory.
//
// A sleeper blocks in poll(), so a pipe replaces the futex of ring_channel.cpp; the protocol is the
// same. The sleeper stores `asleep`, issues a seq_cst fence and looks once more; the caller
// publishes, issues a seq_cst fence and loads `asleep`. At least one of them sees the other's
// store.
#include "collectives/control/hosts_channel.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "rendezvous/os/time_until.h"

namespace hora::collectives {

struct alignas(128) HostsChannel::Sleeper {
  std::atomic<std::uint32_t> asleep;  // 1: a caller has to write into its pipe
  CpuOfRank cpu;
};

namespace {

// poll() with a resolution of nanoseconds: poll()'s milliseconds are too coarse for these waits.
int wait_for(pollfd* fds, nfds_t count, Deadline deadline) {
  if (deadline == Deadline::max()) return ::ppoll(fds, count, nullptr, nullptr);
  const timespec relative = os::timespec_until(deadline);
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
  spread_.enable(parts.spin);
  fast_path_.emplace(
      std::move(parts.plan), sleepers_ + doorbells_.size(), [this](int place) { call(place); },
      [this](int host, std::string_view bytes) { links_->send(leader_peer(host), bytes); });
  // The channel's epoll set contains the pipe, so one descriptor (waiting_fd()) covers everything;
  // duty_ contains that set in turn.
  links_->watch_doorbell(std::move(parts.doorbell));
  epoll_event event{};
  event.events = EPOLLIN;
  epoll_ctl(duty_.get(), EPOLL_CTL_ADD, links_->waiting_fd(), &event);
}

// Wakes the rank if it sleeps. Either it sees what was published before when it looks once more
// before it sleeps, or this thread sees that it sleeps.
void HostsChannel::call(int place) const {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  std::atomic<std::uint32_t>& asleep = sleepers_[place].asleep;
  if (asleep.load(std::memory_order_relaxed) == 0) return;
  if (asleep.exchange(0, std::memory_order_acq_rel) == 0) return;
  // EAGAIN: the pipe is full, so a ring is pending. EPIPE cannot happen: this end is open for
  // reading as well.
  [[maybe_unused]] const ssize_t ignored =
      ::write(doorbells_[static_cast<std::size_t>(place)].get(), "!", 1);
}

// Separates the two kinds of peers: messages of ranks go to the caller, those of other leaders to
// the fast path.
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
        // The plain load spares the exchange, which takes the cache line, in the usual case.
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
  // Release pairs with the exchange in poll(). The eventfd makes the sockets readable, so `asleep`
  // plays no part here.
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

// A caller watches the sockets itself. The runtime's thread watches them by way of duty_, which is
// empty while a caller drives; its eventfd then still wakes it.
void HostsChannel::sleep(Waiter waiter, std::uint32_t, Deadline deadline) {
  if (waiter == Waiter::kCaller) {
    pollfd sockets{links_->waiting_fd(), POLLIN, 0};
    wait_for(&sockets, 1, deadline);
    return spread();  // a caller sleeps while it drives
  }
  pollfd both[2] = {{thread_doorbell_.get(), POLLIN, 0}, {duty_.get(), POLLIN, 0}};
  wait_for(both, 2, deadline);
  if (both[0].revents == 0) return;
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t ignored = ::read(thread_doorbell_.get(), &count, sizeof count);
}

void HostsChannel::spread() {
  spread_.woken([this](int place) -> CpuOfRank& { return sleepers_[place].cpu; },
                static_cast<int>(doorbells_.size()), place_, spinner_.successes());
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
  // With no events the set stays silent: a sleeping thread must not wake for sockets that the
  // caller serves.
  if (waiter == Waiter::kThread) event.events = EPOLLIN;
  epoll_ctl(duty_.get(), EPOLL_CTL_MOD, links_->waiting_fd(), &event);
}

}  // namespace hora::collectives
