// SPDX-License-Identifier: Apache-2.0
// When the next attempt, host or stage may begin: pauses after a refusal, the number of hosts that
// are connected at one time, timers.
#pragma once

#include <algorithm>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <utility>

#include "rendezvous/base/time.h"
#include "rendezvous/os/event_loop.h"

namespace hora::launcher {

// The pause grows with each attempt and has a random part, which keeps a thousand hosts at one
// gateway from coming back together.
class BackOff {
 public:
  void count_attempt() { ++attempts_; }
  int attempts() const { return attempts_; }
  void reset() { attempts_ = 0; }

  Milliseconds next_pause() {
    const int doublings = std::clamp(attempts_ - 1, 0, 5);
    const auto longest = std::min(kLongest, kFirst * (1 << doublings));
    return longest / 2 + Milliseconds(random_() % static_cast<unsigned>(longest.count()));
  }

 private:
  static constexpr Milliseconds kFirst{100};
  static constexpr Milliseconds kLongest{2'000};
  // Launchers that start in the same second need different seeds.
  std::minstd_rand random_{std::random_device{}()};
  int attempts_ = 0;
};

// Bounds how many hosts are being connected at one time, over all threads.
class FanOut {
  struct Waiter;

 public:
  // A host that connects needs one. Belongs to the thread of `loop`, as long as that runs.
  class Permit {
   public:
    Permit(std::shared_ptr<FanOut> fan_out, os::EventLoop& loop)
        : fan_out_(std::move(fan_out)), loop_(loop) {}
    Permit(const Permit&) = delete;
    Permit& operator=(const Permit&) = delete;
    ~Permit() { leave(); }

    // Calls `go` on the loop, from its next turn on, once there is a permit.
    void wait(std::function<void()> go) {
      leave();
      waiter_ = std::make_shared<Waiter>(Waiter{&loop_, std::move(go)});
      fan_out_->add(waiter_);
    }
    // Gives the permit back, or stops waiting for one: `go` is not called any more.
    void leave() {
      if (!waiter_) return;
      waiter_->go = nullptr;
      fan_out_->remove(*std::exchange(waiter_, nullptr));
    }

   private:
    std::shared_ptr<FanOut> fan_out_;
    os::EventLoop& loop_;
    std::shared_ptr<Waiter> waiter_;
  };

  explicit FanOut(int limit) : free_(limit > 0 ? limit : 1) {}

 private:
  struct Waiter {
    os::EventLoop* loop;
    std::function<void()> go;  // of the loop's thread
    bool has_permit = false;   // under the lock
  };

  void add(const std::shared_ptr<Waiter>& waiter) {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(waiter);
    admit();
  }

  void remove(const Waiter& waiter) {
    const std::lock_guard lock(mutex_);
    if (waiter.has_permit) {
      ++free_;
      return admit();
    }
    std::erase_if(waiting_, [&](const auto& each) { return each.get() == &waiter; });
  }

  // Under the lock, so that a loop whose hosts have left is not used any more.
  void admit() {
    while (free_ > 0 && !waiting_.empty()) {
      --free_;
      const std::shared_ptr<Waiter> next = std::move(waiting_.front());
      waiting_.pop_front();
      next->has_permit = true;
      next->loop->post([next] {
        if (const auto go = std::exchange(next->go, nullptr)) go();
      });
    }
  }

  std::mutex mutex_;
  int free_;
  std::deque<std::shared_ptr<Waiter>> waiting_;
};

// A timer of its owner: none of its calls comes after the destructor. Lives on one event loop's
// thread.
class Timer {
 public:
  explicit Timer(os::EventLoop& loop) : loop_(loop) {}
  ~Timer() { cancel(); }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  // Replaces what was set before. `over` is called once, unless the timer is cancelled; after 0 ms
  // in the loop's next turn.
  void set(Clock::time_point when, std::function<void()> over) {
    cancel();
    began_ = Clock::now();
    timer_ = loop_.call_at(when, [this, over = std::move(over)] {
      timer_ = 0;
      over();
    });
  }
  void set(Milliseconds delay, std::function<void()> over) {
    set(Clock::now() + delay, std::move(over));
  }
  bool is_set() const { return timer_ != 0; }
  void cancel() { loop_.cancel(std::exchange(timer_, 0)); }

  // Since set(): "3.2 s".
  std::string waited() const {
    const auto ms = std::chrono::duration_cast<Milliseconds>(Clock::now() - began_).count();
    return ms < 10'000 ? std::to_string(ms / 1000) + "." + std::to_string(ms % 1000 / 100) + " s"
                       : std::to_string((ms + 500) / 1000) + " s";
  }

 private:
  os::EventLoop& loop_;
  Clock::time_point began_;
  os::EventLoop::TimerId timer_ = 0;
};

}  // namespace hora::launcher
