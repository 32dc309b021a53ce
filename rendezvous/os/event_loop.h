// SPDX-License-Identifier: Apache-2.0
// One epoll loop: file descriptors, timers, and a wake-up that other threads may call. Everything
// but wake()/post() belongs to the thread that runs the loop. It runs in turns: everything that is
// ready, then the timers that are due, then some of what was watched as background, then what was
// deferred to the end of the turn. Sockets that unauthenticated clients may write to are
// background: however many there are and whatever they send, the owner's own descriptors and timers
// wait for a few handlers at most.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "rendezvous/base/result.h"
#include "rendezvous/base/time.h"
#include "rendezvous/os/fd.h"

struct epoll_event;

namespace hora::os {

class EventLoop {
 public:
  // Bits as epoll's: EPOLLIN, EPOLLOUT, EPOLLRDHUP, ... EPOLLERR and EPOLLHUP are always reported.
  using IoHandler = std::function<void(std::uint32_t events)>;
  using TimerHandler = std::function<void()>;
  using TimerId = std::uint64_t;  // 0 is never a timer

  static Result<std::unique_ptr<EventLoop>> create();
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // A background handler keeps the others waiting: it does little, and comes back for the rest.
  enum class Priority : std::uint8_t { kNormal, kBackground };

  // The loop does not own `fd`. A handler may watch, change and unwatch any fd, its own included.
  Status watch(int fd, std::uint32_t events, IoHandler handler,
               Priority priority = Priority::kNormal);
  Status change(int fd, std::uint32_t events);
  void unwatch(int fd);

  TimerId call_at(Clock::time_point when, TimerHandler handler);
  TimerId call_after(Clock::duration delay, TimerHandler handler);
  void cancel(TimerId id);  // an expired or unknown timer is ignored

  // Runs `task` on the loop's thread, soon. From any thread, also from the loop's own.
  void post(std::function<void()> task);

  // Runs `task` at the end of this turn, before the loop waits again; on the loop's thread only.
  // For what several handlers of a turn ask for and is best done once.
  void defer(std::function<void()> task) { deferred_.push_back(std::move(task)); }

  // When it was last asked which descriptors are ready: what is silent has been so until then. All
  // that was ready (background aside) is handled before any timer that is due, however long a
  // handler took, or this process was stopped.
  Clock::time_point polled_at() const { return polled_at_; }

  // Until stop(). An error here is a broken epoll, not a handler's failure.
  Status run();
  void stop();

 private:
  explicit EventLoop(Fd epoll, Fd wake_up);
  Status open_background();
  struct Ready;  // events, and how many of them there are
  Result<bool> poll(Ready& normal, Ready& background);
  void dispatch(const epoll_event& event);
  void run_due_timers();
  void run_posted();
  void run_deferred();
  int next_timeout_ms() const;

  struct Watch {
    std::uint64_t generation;
    std::shared_ptr<IoHandler> handler;
    int epoll;  // that watches it
  };

  Fd epoll_;
  Fd background_;  // watches epoll_, too; none before something is watched there
  Fd wake_up_;
  std::size_t normal_watches_ = 0;
  bool stopped_ = false;
  Clock::time_point polled_at_ = Clock::now();
  std::uint64_t next_generation_ = 1;
  std::unordered_map<int, Watch> watches_;
  TimerId next_timer_ = 1;
  using Timers = std::multimap<Clock::time_point, std::pair<TimerId, TimerHandler>>;
  Timers timers_;
  std::vector<std::function<void()>> deferred_;
  std::mutex posted_mutex_;
  std::vector<std::function<void()>> posted_;
  std::unordered_map<TimerId, Timers::iterator> timer_of_;  // those in timers_
};

}  // namespace hora::os
