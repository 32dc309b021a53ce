// SPDX-License-Identifier: Apache-2.0
// One thread in poll(): the ends of the control connections, the heartbeat socket, and an eventfd
// to stop it. It holds the mutex only for short copies and calls back at most once about a break,
// so it cannot be blocked by the runtime that it watches.
#include "collectives/runtime/watchdog.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>

#include "collectives/control/tcp_channel.h"
#include "rendezvous/base/time.h"
#include "rendezvous/os/threads.h"
#include "rendezvous/os/time_until.h"

namespace hora::collectives {

namespace {

constexpr Milliseconds kLookEvery{250};
// Without a short limit: the ranks of a large job exchange heartbeats for as long as it runs.
constexpr Milliseconds kLookSeldom{2000};
constexpr int kLooksPerWarning = 8;
// A watchdog answers at once; this allows for a busy machine.
constexpr Milliseconds kWatchdogAnswerTime{1250};
// A watchdog that is this late was itself stopped, or its whole job was.
constexpr Milliseconds kOverslept{1000};

Milliseconds time_between_looks(const std::optional<Watchdog::Watch>& watch) {
  if (!watch || watch->limit.count() > 0) return kLookEvery;
  return std::clamp<Milliseconds>(watch->warning / kLooksPerWarning, kLookEvery, kLookSeldom);
}

}  // namespace

Watchdog::Watchdog(std::vector<int> fds, OnBreak on_break, std::optional<Watch> watch)
    : fds_(std::move(fds)),
      on_break_(std::move(on_break)),
      watch_(std::move(watch)),
      look_every_(time_between_looks(watch_)),
      answer_timeout_(kWatchdogAnswerTime + (watch_ ? watch_->signs.delay() : 1) * look_every_),
      stuck_since_(Clock::now()),
      next_look_(stuck_since_),
      next_warning_(stuck_since_),
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
  // An eventfd, not a flag: the thread may be in poll() for as long as the job lives.
  if (!thread_.joinable()) return;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t ignored = ::write(stop_.get(), &one, sizeof one);
  thread_.join();
}

void Watchdog::in_step(std::uint64_t number, std::int32_t set, std::string_view what) {
  // The text is for warnings only; without a watch it has no reader, and small steps save the lock.
  step_ = number;
  if (!watch_) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    what_ = what;
  }
  // Set and kind are packed in one word, so the watchdog reads both from the same moment. Relaxed:
  // nothing is ordered by it.
  waits_.store(pack(set, true), std::memory_order_relaxed);
}

void Watchdog::run() {
  std::vector<pollfd> fds{{stop_.get(), POLLIN, 0}, {watch_ ? watch_->signs.fd() : -1, POLLIN, 0}};
  // Only the end of the stream, not data: the runtime's thread reads the messages.
  for (int fd : fds_) fds.push_back({fd, POLLRDHUP, 0});
  while (true) {
    const int pause = watch_ ? os::milliseconds_until(next_look_) : -1;
    if (::poll(fds.data(), fds.size(), pause) < 0) {
      if (errno == EINTR) continue;
      return;
    }
    if (fds[0].revents != 0) return;
    for (std::size_t i = 2; i < fds.size(); ++i) {
      // Level-triggered: there is nothing left to watch once it has fired.
      if (fds[i].revents != 0) return on_break_({});
    }
    if (!watch_) continue;
    const auto now = Clock::now();
    watch_->signs.receive(now, own_wait(now));
    // Heartbeats are answered at once; silence is judged at intervals.
    if (now < next_look_) continue;
    if (const std::vector<int> silent = look(now); !silent.empty()) return on_break_(silent);
    next_look_ = now + look_every_;
  }
}

std::vector<int> Watchdog::look(Clock::time_point now) {
  Heartbeat& signs = watch_->signs;
  // The whole machine or job was stopped: the silence of the others in that time proves nothing.
  if (now - next_look_ > kOverslept) {
    signs.restart(now);
    stuck_since_ = now;
  }
  signs.ask(now);
  for (const int fd : fds_) tolerate_losses(fd);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    // For the stall inspector, which has a limit of its own and asks only which ranks answer now.
    silent_ = signs.silent_since(now - answer_timeout_);
  }
  warn(now);
  if (watch_->limit.count() == 0) return {};
  std::vector<int> silent = silent_for(watch_->limit + answer_timeout_, now);
  std::erase_if(silent, [&](int rank) { return !is_waited_for(rank, now); });
  return silent;
}

// If any, also those that have been silent for a little less: the last signs of the ranks of a host
// that is stopped as a whole did not come at the same moment, and they are named together.
std::vector<int> Watchdog::silent_for(Milliseconds time, Clock::time_point now) const {
  std::vector<int> silent = watch_->signs.silent_since(now - time);
  if (silent.empty()) return silent;
  return watch_->signs.silent_since(now - time + answer_timeout_ - kWatchdogAnswerTime);
}

Wait Watchdog::own_wait(Clock::time_point now) {
  const std::int64_t waits = waits_.load(std::memory_order_relaxed);
  const std::uint64_t ended = ended_.load(std::memory_order_relaxed);
  // Either another wait, or the same wait for something new: steps that follow each other in one
  // set look alike but for the count.
  if (waits != seen_waits_ || ended != seen_ended_) stuck_since_ = now;
  seen_waits_ = waits;
  seen_ended_ = ended;
  Wait own{static_cast<std::int32_t>(waits >> 1),
           (waits & 1) != 0,
           std::chrono::floor<Milliseconds>(now - stuck_since_),
           {}};
  if (own.in_step) {
    const std::lock_guard<std::mutex> lock(mutex_);
    own.what = what_;
  }
  return own;
}

bool Watchdog::has(std::int32_t set, int rank) const {
  const SetTable::Ranks ranks = watch_->sets->ranks(set);
  return ranks != nullptr && std::count(ranks->begin(), ranks->end(), rank) > 0;
}

// Rank 0 knows in which sets all other ranks wait. The others miss only rank 0, whatever they wait
// for.
bool Watchdog::is_waited_for(int rank, Clock::time_point now) const {
  const auto own = static_cast<std::int32_t>(waits_.load(std::memory_order_relaxed) >> 1);
  if (watch_->rank != 0) return own != Wait::kNowhere;
  const std::vector<Wait> others = watch_->signs.waits(now - answer_timeout_);
  return has(own, rank) || std::any_of(others.begin(), others.end(),
                                       [&](const Wait& wait) { return has(wait.set, rank); });
}

void Watchdog::warn(Clock::time_point now) {
  if (watch_->warning.count() == 0) return;
  const Wait own = own_wait(now);
  const std::vector<Silence> silent = find_silent(now, own);
  if (silent.empty()) {
    next_warning_ = now;
    warnings_ = 0;
  } else if (now >= next_warning_) {
    next_warning_ = now + watch_->warning;
    if (has_turn(own, warnings_++)) watch_->on_silence(silent);
  }
}

// Silent ranks that the stall inspector on rank 0 does not report.
std::vector<Watchdog::Silence> Watchdog::find_silent(Clock::time_point now, const Wait& own) const {
  std::vector<Wait> waits;
  if (watch_->rank == 0) waits = watch_->signs.waits(now - answer_timeout_);
  // Operations that a rank has not submitted are in rank 0's table, which the stall inspector
  // reads.
  std::erase_if(waits, [](const Wait& wait) { return !wait.in_step; });
  // The others cannot see rank 0's table, so any wait of theirs counts.
  if (own.in_step || watch_->rank != 0) waits.insert(waits.begin(), own);
  std::erase_if(waits, [&](const Wait& wait) {
    return wait.set == Wait::kNowhere || wait.since < watch_->warning;
  });
  std::vector<Silence> silent;
  if (waits.empty()) return silent;
  for (const int rank : silent_for(std::max(watch_->warning, answer_timeout_), now)) {
    // Every rank needs rank 0 to agree on the next operation.
    const auto wait = std::find_if(waits.begin(), waits.end(), [&](const Wait& each) {
      return rank == 0 || has(each.set, rank);
    });
    if (wait != waits.end()) silent.push_back({rank, *wait});
  }
  return silent;
}

// The workers do not exchange messages. While rank 0 is silent they report it in turn, so each time
// one of them does, unless it is stopped as well.
bool Watchdog::has_turn(const Wait& own, std::size_t turn) const {
  if (watch_->rank == 0) return true;
  const SetTable::Ranks ranks = watch_->sets->ranks(own.set);
  if (ranks == nullptr) return false;
  std::vector<std::int32_t> others = *ranks;
  std::erase(others, 0);
  return !others.empty() && others[turn % others.size()] == watch_->rank;
}

}  // namespace hora::collectives
