// SPDX-License-Identifier: Apache-2.0
// Which thread drives, and which sleep. At most one thread holds driving_. The hard part is that no
// submission may stay in the queue while all threads sleep. The two sides meet like Dekker's
// algorithm: a submitter pushes, then reads whether a thread looks; a thread that goes to sleep
// announces it, then reads the queue. Both use sequentially consistent order between their store
// and their load, so at least one of them sees the other.
#include "collectives/runtime/driver.h"

#include <algorithm>
#include <utility>

#include "collectives/memory/futex.h"

namespace hora::collectives {

namespace {

// How often the thread looks for submissions that no caller waits for, and their minimum age when
// it takes them.
constexpr std::chrono::milliseconds kLookForSubmissions{1};
// The end of a connection wakes the sleeper; this bounds the cost of a lost wake-up.
constexpr std::chrono::seconds kLookAtLinks{1};
// After this many looks without work, the thread sleeps until it is woken.
constexpr int kIdleLooks = 50;
// A thread that watches leaves the lock in less than a microsecond, which is this many tries,
// unless it has lost its core.
constexpr int kQuickTries = 16;
constexpr std::chrono::microseconds kTakeOverTimeout{20};

}  // namespace

void Driver::run() {
  // A backend that is created later may need this thread alone; then run_in_turns() returns.
  if (engine_.waiters() != nullptr) run_in_turns();
  while (!engine_.ended()) {
    const std::lock_guard<std::mutex> lock(driving_);
    engine_.step(Deadline::max());
  }
  const std::lock_guard<std::mutex> lock(driving_);
  engine_.linger();
}

void Driver::run_in_turns() {
  std::uint32_t waits = 0;
  int idle_looks = kIdleLooks;
  Deadline next_look = Clock::now() + kLookAtLinks;
  while (Waiters* waiters = engine_.waiters()) {
    // Before the work: a ring between the last look and sleep() then ends the sleep at once.
    const std::uint32_t ticket = waiters->ticket_of(Waiter::kThread);
    // Pairs with the fence in let_go(): either this thread gets the lock, or the caller that has it
    // sees that this thread was rung.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    Deadline due = Deadline::max();
    if (std::unique_lock<std::mutex> lock(driving_, std::try_to_lock); lock) {
      waiters->unpark();
      waiters->set_driver(Waiter::kThread);
      bool worked = false;
      while (!engine_.ended() &&
             (engine_.step(kNoWait, may_take()) || (worked && watch_for_work(*waiters)))) {
        worked = true;
      }
      if (engine_.ended()) return;
      // A caller that takes over parks when it lets go; if it gives up, it rings this thread.
      if (takers_.load(std::memory_order_seq_cst) == 0) {
        // Still under the lock: from here on whatever arrives rings this thread.
        if (!waiters->park(Waiter::kThread)) continue;
        due = engine_.fast_path_due();
      }
    }
    const bool looking = callers_wait_.load(std::memory_order_seq_cst);
    if (looking && idle_looks >= kIdleLooks) {
      thread_dozes_.store(true, std::memory_order_seq_cst);
      // Either this thread sees the submission here, or the submitter sees that the thread dozes.
      if (engine_.queue().oldest()) idle_looks = 0;
    }
    const auto now = Clock::now();
    // While callers alternate between submitting and waiting, nothing wakes this thread: it looks
    // for submissions that no caller waits for. After some looks without result it sleeps for long,
    // and submitters wake it.
    const bool looks_soon = looking && idle_looks < kIdleLooks;
    waiters->sleep(Waiter::kThread, ticket,
                   std::min(due, looks_soon ? now + kLookForSubmissions : next_look));
    thread_dozes_.store(false, std::memory_order_seq_cst);
    const std::uint32_t before = std::exchange(waits, waits_.load(std::memory_order_relaxed));
    // Idle only if no caller has waited for what it had left meanwhile, and nothing is queued.
    idle_looks = before == waits && !engine_.queue().oldest() ? idle_looks + 1 : 0;
    if (now >= next_look) {
      next_look = now + kLookAtLinks;
      engine_.wake();
    }
  }
}

// The thread's, for some microseconds: whether there is something to do, and no other thread wants
// to.
bool Driver::watch_for_work(Waiters& waiters) {
  thread_watches_.store(true, std::memory_order_seq_cst);
  const bool came = waiters.watch();
  thread_watches_.store(false, std::memory_order_relaxed);
  return came && takers_.load(std::memory_order_seq_cst) == 0;
}

// A caller's, while the thread only watches: it does its operation itself, rather than be woken
// by the thread when that has done it. Not locked: it did not get the lock soon.
std::unique_lock<std::mutex> Driver::take_over(const Operation& operation, Waiters& waiters) {
  std::unique_lock<std::mutex> lock(driving_, std::defer_lock);
  if (!thread_watches_.load(std::memory_order_seq_cst)) return lock;
  takers_.fetch_add(1, std::memory_order_seq_cst);
  engine_.wake();  // ends the watch
  const Deadline timeout = Clock::now() + kTakeOverTimeout;
  for (int tries = 0; !lock.try_lock() && !operation.done() && Clock::now() < timeout; ++tries) {
    // It may be this caller's core that the thread has lost, or yields.
    tries < kQuickTries ? relax() : give_way();
  }
  takers_.fetch_sub(1, std::memory_order_seq_cst);
  // The thread may have left the lock to this caller.
  if (!lock) waiters.ring(Waiter::kThread);
  return lock;
}

// For the thread: whether it takes what is in the queue.
bool Driver::may_take() {
  if (!callers_wait_.load(std::memory_order_seq_cst) ||
      waiting_.load(std::memory_order_seq_cst) > 0) {
    return true;
  }
  const auto oldest = engine_.queue().oldest();
  if (!oldest) return true;
  if (Clock::now() - *oldest < kLookForSubmissions) return false;
  callers_wait_.store(false, std::memory_order_seq_cst);
  // Before the look at the queue, which is only an acquire: pairs with the fence in submitted(). A
  // submitter that still reads true there wakes no thread, so this thread has to see what it
  // queued.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return true;
}

void Driver::submitted(bool first, bool alone, Then then) {
  // The submitter of the first has seen to it that the waiting ones are taken, this as well.
  if (!first) return;
  // Between the push and all looks below. Either the driving or dozing thread sees the queue, or
  // this thread sees that callers no longer wait, or that it drives or dozes. The queue's mutex is
  // not enough: its release may let a later load overtake the push, other than on x86-64.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!callers_wait_.load(std::memory_order_seq_cst)) {
    // A caller that waits at once drives, or wakes the thread then.
    if (then == Then::kGoesOn) engine_.wake();
    return;
  }
  if (caller_drives_.load(std::memory_order_relaxed)
          ? !alone
          : then == Then::kGoesOn && thread_dozes_.load(std::memory_order_relaxed)) {
    engine_.wake();
  }
}

bool Driver::wait_for(Operation& operation, Deadline deadline, Then then) {
  if (operation.done()) return true;
  Waiters* const waiters = engine_.waiters();
  if (waiters == nullptr) {
    if (then == Then::kWaits) engine_.wake();
    return operation.wait(deadline);
  }
  // hora_poll(): the caller has something else to do, so only the thread can make progress.
  if (deadline != Deadline::max() && Clock::now() >= deadline) {
    // The caller only polls, so the thread has to do the work.
    if (callers_wait_.exchange(false, std::memory_order_seq_cst) || then == Then::kWaits) {
      engine_.wake();
    }
    return operation.done();
  }
  // Lets the thread take from the queue what this caller waits for, if another caller drives.
  waiting_.fetch_add(1, std::memory_order_seq_cst);
  std::unique_lock<std::mutex> lock(driving_, std::try_to_lock);
  if (!lock) lock = take_over(operation, *waiters);
  if (lock) {
    drive(operation, *waiters, deadline);
    let_go(std::move(lock), *waiters);
  } else {
    engine_.wake();  // the driving thread may have left this caller's operation in the queue
  }
  // The driving thread finishes the operation and wakes this caller through its futex.
  const bool done = operation.wait(deadline);
  waiting_.fetch_sub(1, std::memory_order_seq_cst);
  // Not before: a long wait may be in slices, which would keep the thread looking.
  if (done && then == Then::kGoesOn) waits_.fetch_add(1, std::memory_order_relaxed);
  return done;
}

void Driver::drive(Operation& operation, Waiters& waiters, Deadline deadline) noexcept {
  caller_drives_.store(true, std::memory_order_seq_cst);
  waiters.set_driver(Waiter::kCaller);
  // The thread may be in a long sleep; from now on it has to look regularly.
  if (!callers_wait_.exchange(true, std::memory_order_seq_cst)) waiters.ring(Waiter::kThread);
  // A small operation that ends at once leaves the thread parked: announcing that it is not, and
  // then that it is, takes a cache line from the other ranks each time. Later submissions ring it.
  bool parked = waiters.may_stay_parked();
  if (!parked) waiters.unpark();
  engine_.progress_inline(operation);
  if (parked && !(operation.done() && waiters.may_stay_parked())) {
    waiters.unpark();
    parked = false;
  }
  while (!operation.done() && !engine_.ended()) {
    const std::uint32_t ticket = waiters.ticket_of(Waiter::kCaller);
    // watch() polls for some microseconds: a small operation usually ends within them.
    if (engine_.step(kNoWait) || operation.done() || waiters.watch()) continue;
    const Deadline next_look = Clock::now() + kLookAtLinks;
    if (waiters.park(Waiter::kCaller)) {
      waiters.sleep(Waiter::kCaller, ticket,
                    std::min({deadline, next_look, engine_.fast_path_due()}));
    }
    waiters.unpark();
    const auto now = Clock::now();
    if (now >= deadline) break;
    if (now >= next_look) engine_.wake();
  }
  // Finish everything that has arrived, because no other thread is awake. park() has the fence
  // between this store and the look at the queue below.
  caller_drives_.store(false, std::memory_order_seq_cst);
  waiters.set_driver(Waiter::kThread);
  const auto park = [&] {
    // Then the other ranks do nothing that needs this one before its callers ask for it.
    const bool idle = engine_.queue().nothing_in_flight() && engine_.sets().only_the_world();
    return waiters.park(idle ? Waiter::kIdleThread : Waiter::kThread);
  };
  while (!parked && !engine_.ended() && (engine_.unfinished() || !park())) {
    engine_.step(kNoWait);
  }
  // A submission in the meantime may have woken only this caller; and another caller's fast-path
  // operation may become due.
  if (engine_.ended() || engine_.queue().something_waits() ||
      engine_.fast_path_due() != Deadline::max()) {
    waiters.ring(Waiter::kThread);
  }
}

void Driver::let_go(std::unique_lock<std::mutex> lock, Waiters& waiters) {
  lock.unlock();
  std::atomic_thread_fence(std::memory_order_seq_cst);
  // The thread was rung, and may have gone to sleep again because a caller had the lock.
  if (waiters.thread_was_rung()) waiters.ring(Waiter::kThread);
}

}  // namespace hora::collectives
