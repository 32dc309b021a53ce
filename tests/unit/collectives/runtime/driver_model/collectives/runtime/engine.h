// SPDX-License-Identifier: Apache-2.0
// What collectives/runtime/driver.cpp runs on in driver_model_test: a scheduler that decides which
// thread has the next turn at every access to an atomic, a fence and a mutex, so that a search can
// try all orders. A store that is not sequentially consistent may stay in the thread's store buffer
// until its next fence, read-modify-write or such store, as on x86-64. Loads are not reordered.
//
// Engine, its queue and the doorbells are doubles with the protocol of the real ones: RequestQueue,
// and RingChannel with one rank that a peer answers.
#pragma once

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace hora::collectives {

struct Clock {
  using duration = std::chrono::nanoseconds;
  using time_point = std::chrono::time_point<Clock, duration>;
  static time_point now();
};
using Deadline = Clock::time_point;
inline constexpr Deadline kNoWait = Deadline::min();

namespace model {

struct Store {
  void* place;
  std::uint64_t value;
  std::function<void()> apply;
};

struct Thread {
  std::string name;
  std::function<void()> body;
  ucontext_t begin;
  jmp_buf place;  // where it goes on; unlike swapcontext() without a system call
  bool begun = false;
  bool ended = false;
  std::function<bool()> ready;  // null: it runs
  Deadline deadline = Deadline::max();
  std::deque<Store> buffer;
};

// One run of the threads in an order that is given by `choices`, and by the first option beyond.
class Scheduler {
 public:
  struct Choice {
    int taken;
    int options;
  };

  // `most_switches`: how often a thread may lose its turn, or keep a store in its buffer, where it
  // need not. `fences`: whether fences do anything.
  Scheduler(std::vector<Choice> choices, int most_switches, bool fences)
      : choices_(std::move(choices)), switches_left_(most_switches), fences_(fences) {}

  void add(std::string name, std::function<void()> body) {
    auto thread = std::make_unique<Thread>();
    thread->name = std::move(name);
    thread->body = std::move(body);
    threads_.push_back(std::move(thread));
  }
  // Until `finished`; then `end` is called, and all threads run until they end. False: before, all
  // threads slept, and no clock that may be relied on would have woken one.
  bool run(const std::function<bool()>& finished, const std::function<void()>& end);
  const std::vector<Choice>& choices() const { return choices_; }

  // Of the thread that runs.
  void turn();   // another one may have the next turn
  void yield();  // another one has it, if one is ready
  void wait(std::function<bool()> ready, Deadline deadline = Deadline::max());
  void store(void* place, std::uint64_t value, std::function<void()> apply, bool at_once);
  void flush();
  void fence() {
    turn();
    if (fences_) flush();
  }
  // What this thread has stored there and has not shown the others yet.
  const std::uint64_t* own(const void* place) const;

  Clock::time_point now{};

 private:
  static void enter();
  bool run_until(const std::function<bool()>& finished);
  Thread* next_of(std::vector<Thread*> ready);
  int choose(int options);
  void leave();
  bool is_ready(const Thread& thread) const {
    return !thread.ended && (!thread.ready || thread.ready());
  }
  void drain(Thread& thread);

  std::vector<Choice> choices_;
  std::size_t next_choice_ = 0;
  int switches_left_;
  bool fences_;
  std::vector<std::unique_ptr<Thread>> threads_;
  Thread* running_ = nullptr;
  bool yields_ = false;  // the one that ran last
  bool ending_ = false;
  jmp_buf main_;
  std::size_t turns_ = 0;
};

inline Scheduler* scheduler = nullptr;

template <typename T>
class Atomic {
 public:
  Atomic(T value = T()) : value_(value) {}
  T load(std::memory_order = std::memory_order_seq_cst) const {
    scheduler->turn();
    return seen();
  }
  void store(T value, std::memory_order order = std::memory_order_seq_cst) {
    scheduler->turn();
    scheduler->store(
        this, static_cast<std::uint64_t>(value), [this, value] { value_ = value; },
        order == std::memory_order_seq_cst);
  }
  template <typename Change>
  T change(const Change& to) {
    scheduler->turn();
    scheduler->flush();
    const T before = value_;
    value_ = to(before);
    return before;
  }
  T exchange(T value, std::memory_order = std::memory_order_seq_cst) {
    return change([value](T) { return value; });
  }
  T fetch_add(T more, std::memory_order = std::memory_order_seq_cst) {
    return change([more](T before) { return static_cast<T>(before + more); });
  }
  T fetch_sub(T less, std::memory_order = std::memory_order_seq_cst) {
    return change([less](T before) { return static_cast<T>(before - less); });
  }
  // For conditions of the scheduler: what all threads see.
  T shown() const { return value_; }

 private:
  T seen() const {
    const std::uint64_t* const own = scheduler->own(this);
    return own != nullptr ? static_cast<T>(*own) : value_;
  }
  T value_;
};

class Mutex {
 public:
  bool try_lock() { return !locked_.exchange(true); }
  void lock() {
    while (!try_lock()) scheduler->wait([this] { return !locked_.shown(); });
  }
  void unlock() { locked_.store(false, std::memory_order_release); }

 private:
  Atomic<bool> locked_{false};
};

}  // namespace model
}  // namespace hora::collectives

// The real driver names these of the standard library.
namespace std {
template <typename T>
using model_atomic = hora::collectives::model::Atomic<T>;
using model_mutex = hora::collectives::model::Mutex;
inline void model_fence(memory_order) { hora::collectives::model::scheduler->fence(); }
}  // namespace std
#define atomic model_atomic
#define mutex model_mutex
#define atomic_thread_fence model_fence

namespace hora::collectives {

inline Clock::time_point Clock::now() {
  return model::scheduler->now += std::chrono::microseconds(1);
}
inline void relax() { model::scheduler->yield(); }
inline void give_way() { model::scheduler->yield(); }

class Operation {
 public:
  bool done() const { return done_.load(std::memory_order_acquire); }
  bool wait(Deadline deadline) {
    if (!done()) model::scheduler->wait([this] { return done_.shown(); }, deadline);
    return done();
  }
  void finish() { done_.exchange(true); }
  bool is_done() const { return done_.shown(); }

  Clock::time_point submitted{};
  bool needs_peer = false;

 private:
  std::atomic<bool> done_{false};
};
using OperationPtr = Operation*;
enum class AtOnce { kNotBegun, kUnderWay, kDone };

enum class Waiter : std::uint32_t { kThread = 1, kCaller = 2, kIdleThread = 3 };

class Waiters {
 public:
  std::uint32_t ticket_of(Waiter waiter) {
    return doorbell(waiter).load(std::memory_order_acquire);
  }
  bool watch() {
    for (int looks = 0; looks < 2; ++looks) {
      if (something_came()) return true;
      model::scheduler->yield();
    }
    return something_came();
  }
  bool park(Waiter waiter) {
    asleep_.store(static_cast<std::uint32_t>(waiter), std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (!something_came()) return true;
    unpark();
    return false;
  }
  void unpark() { asleep_.store(0, std::memory_order_relaxed); }
  bool may_stay_parked() { return !thread_was_rung(); }
  bool thread_was_rung() {
    const std::uint32_t asleep = asleep_.load(std::memory_order_relaxed);
    return asleep != static_cast<std::uint32_t>(Waiter::kThread) &&
           asleep != static_cast<std::uint32_t>(Waiter::kIdleThread);
  }
  void sleep(Waiter waiter, std::uint32_t ticket, Deadline deadline) {
    if (ticket_of(waiter) != ticket) return;
    const auto& word = doorbell(waiter);
    model::scheduler->wait([&word, ticket] { return word.shown() != ticket; }, deadline);
  }
  void ring(Waiter waiter) { doorbell(waiter).fetch_add(1, std::memory_order_acq_rel); }
  void set_driver(Waiter) {}

  // Those of the channel.
  void wake() {
    woken_.store(true, std::memory_order_release);
    call();
  }
  void call() {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (asleep_.load(std::memory_order_relaxed) == 0) return;
    const std::uint32_t waiter = asleep_.exchange(0, std::memory_order_acq_rel);
    if (waiter != 0) doorbells_[(waiter - 1) % 2].fetch_add(1, std::memory_order_acq_rel);
  }
  bool take_woken() {
    return woken_.load(std::memory_order_relaxed) &&
           woken_.exchange(false, std::memory_order_acq_rel);
  }
  // The peer's answers, in its ring.
  std::atomic<int> answers{0};

 private:
  bool something_came() {
    return woken_.load(std::memory_order_acquire) || answers.load(std::memory_order_acquire) > 0;
  }
  std::atomic<std::uint32_t>& doorbell(Waiter waiter) {
    return doorbells_[static_cast<std::uint32_t>(waiter) - 1];
  }

  std::atomic<std::uint32_t> asleep_{0};
  std::atomic<std::uint32_t> doorbells_[2];
  std::atomic<bool> woken_{false};
};

class RequestQueue {
 public:
  // Whether nothing waited, and whether nothing was in flight.
  std::pair<bool, bool> push(Operation& operation) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const int others = in_flight_.fetch_add(1);
    const bool first = waiting_.empty();
    operation.submitted = Clock::now();
    waiting_.push_back(&operation);
    something_waits_.store(true, std::memory_order_release);
    return {first, others == 0};
  }
  bool nothing_in_flight() const { return in_flight_.load(std::memory_order_acquire) == 0; }
  bool something_waits() const { return something_waits_.load(std::memory_order_acquire); }
  std::vector<Operation*> take() {
    if (!something_waits()) return {};
    const std::lock_guard<std::mutex> lock(mutex_);
    something_waits_.store(false, std::memory_order_relaxed);
    return std::exchange(waiting_, {});
  }
  std::optional<Clock::time_point> oldest() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return waiting_.empty() ? std::nullopt : std::optional(waiting_.front()->submitted);
  }
  void finish(Operation& operation) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      in_flight_.fetch_sub(1, std::memory_order_release);
    }
    operation.finish();
  }

 private:
  std::mutex mutex_;
  std::vector<Operation*> waiting_;
  std::atomic<int> in_flight_{0};
  std::atomic<bool> something_waits_{false};
};

struct Sets {
  bool only_the_world() const { return true; }
};

class Engine {
 public:
  Waiters* waiters() { return &waiters_; }
  RequestQueue& queue() { return queue_; }
  Sets sets() const { return {}; }
  void wake() { waiters_.wake(); }
  bool ended() const { return has_ended; }
  bool unfinished() const { return false; }
  void linger() {}
  Deadline fast_path_due() const { return Deadline::max(); }
  AtOnce run_at_once(Operation*) { return AtOnce::kNotBegun; }
  void progress_inline(Operation&) { step(kNoWait); }
  // Whether it did something. It is only called by the thread that drives.
  bool step(Deadline, bool may_take = true) {
    bool worked = waiters_.take_woken();
    for (int answers = waiters_.answers.exchange(0); answers > 0; --answers) {
      queue_.finish(*std::exchange(under_way_.front(), nullptr));
      under_way_.pop_front();
      worked = true;
    }
    if (!may_take) return worked;
    for (Operation* const each : queue_.take()) {
      worked = true;
      if (!each->needs_peer) {
        queue_.finish(*each);
        continue;
      }
      under_way_.push_back(each);
      asked.fetch_add(1);
    }
    return worked;
  }
  std::atomic<int> asked{0};  // of the peer
  bool has_ended = false;

 private:
  Waiters waiters_;
  RequestQueue queue_;
  std::deque<Operation*> under_way_;
};

}  // namespace hora::collectives
