#include "collectives/runtime/driver.h"

#include <algorithm>
#include <utility>

namespace hora::collectives {

namespace {

// How often the thread looks for what nobody waits for, after others did, and how old that is at
// least when it takes it.
constexpr std::chrono::milliseconds kLookForSubmissions{1};
// The ends of connections wake whoever sleeps; this bounds what a lost wake-up could cost.
constexpr std::chrono::seconds kLookAtLinks{1};
// After so many looks at which there was nothing the thread sleeps until it is woken.
constexpr int kIdleLooks = 50;

}  // namespace

void Driver::run() {
  if (engine_.waiters() != nullptr) run_in_turns();
  while (!engine_.ended()) {
    const std::lock_guard<std::mutex> lock(driving_);
    engine_.step(Deadline::max());
  }
  const std::lock_guard<std::mutex> lock(driving_);
  engine_.linger();
}

void Driver::run_in_turns() {
  std::uint32_t drives = 0;
  int idle_looks = 0;
  Deadline next_look = Clock::now() + kLookAtLinks;
  while (Waiters* waiters = engine_.waiters()) {
    const std::uint32_t ticket = waiters->ticket_of(Waiter::kThread);
    Deadline due = Deadline::max();
    if (std::unique_lock<std::mutex> lock(driving_, std::try_to_lock); lock) {
      waiters->unpark();
      waiters->set_driver(Waiter::kThread);
      bool worked = false;
      while (!engine_.ended() &&
             (engine_.step(kNoWait, may_take()) || (worked && waiters->watch()))) {
        worked = true;
      }
      if (engine_.ended()) return;
      if (!waiters->park(Waiter::kThread)) continue;
      due = engine_.fast_path_due();
    }
    const bool looking = callers_wait_.load(std::memory_order_seq_cst);
    if (looking && idle_looks >= kIdleLooks) {
      thread_dozes_.store(true, std::memory_order_seq_cst);
      // Either it is seen here, or its submitter sees that the thread dozes.
      if (engine_.queue().oldest()) idle_looks = 0;
    }
    const auto now = Clock::now();
    const bool looks_soon = looking && idle_looks < kIdleLooks;
    waiters->sleep(Waiter::kThread, ticket,
                   std::min(due, looks_soon ? now + kLookForSubmissions : next_look));
    thread_dozes_.store(false, std::memory_order_seq_cst);
    const std::uint32_t before = std::exchange(drives, drives_.load(std::memory_order_relaxed));
    idle_looks = before == drives && !engine_.queue().oldest() ? idle_looks + 1 : 0;
    if (now >= next_look) {
      next_look = now + kLookAtLinks;
      engine_.wake();
    }
  }
}

// The thread: whether it is to take what is in the queue.
bool Driver::may_take() {
  if (!callers_wait_.load(std::memory_order_seq_cst) ||
      waiting_.load(std::memory_order_seq_cst) > 0) {
    return true;
  }
  const auto oldest = engine_.queue().oldest();
  if (!oldest) return true;
  if (Clock::now() - *oldest < kLookForSubmissions) return false;
  callers_wait_.store(false, std::memory_order_seq_cst);
  return true;
}

void Driver::submitted(bool first, bool alone) {
  if (!callers_wait_.load(std::memory_order_seq_cst)) {
    if (first) engine_.wake();
    return;
  }
  // Either who drives or dozes sees what is in the queue, or it is seen here that he does.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (caller_drives_.load(std::memory_order_relaxed)
          ? !alone
          : thread_dozes_.load(std::memory_order_relaxed)) {
    engine_.wake();
  }
}

bool Driver::wait_for(Operation& operation, Deadline deadline) {
  if (operation.done()) return true;
  Waiters* const waiters = engine_.waiters();
  if (waiters == nullptr) return operation.wait(deadline);
  if (deadline != Deadline::max() && Clock::now() >= deadline) {
    // It only looks, and does not wait: the thread has to work.
    if (callers_wait_.exchange(false, std::memory_order_seq_cst)) engine_.wake();
    return operation.done();
  }
  waiting_.fetch_add(1, std::memory_order_seq_cst);
  if (std::unique_lock<std::mutex> lock(driving_, std::try_to_lock); lock) {
    drive(operation, *waiters, deadline);
  } else {
    engine_.wake();  // who drives may have left in the queue what this caller waits for
  }
  const bool done = operation.wait(deadline);
  waiting_.fetch_sub(1, std::memory_order_seq_cst);
  return done;
}

void Driver::drive(Operation& operation, Waiters& waiters, Deadline deadline) noexcept {
  caller_drives_.store(true, std::memory_order_seq_cst);
  waiters.unpark();
  waiters.set_driver(Waiter::kCaller);
  drives_.fetch_add(1, std::memory_order_relaxed);
  // The thread sleeps for long; from now on it is to look.
  if (!callers_wait_.exchange(true, std::memory_order_seq_cst)) waiters.ring(Waiter::kThread);
  engine_.progress_inline(operation);
  while (!operation.done() && !engine_.ended()) {
    const std::uint32_t ticket = waiters.ticket_of(Waiter::kCaller);
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
  // Leaves nothing undone, since nobody else is awake.
  caller_drives_.store(false, std::memory_order_seq_cst);
  waiters.set_driver(Waiter::kThread);
  while (!engine_.ended() && (engine_.unfinished() || !waiters.park(Waiter::kThread))) {
    engine_.step(kNoWait);
  }
  // What came into the queue meanwhile may have woken nobody but this caller; and what another one
  // has in the fast path falls due.
  if (engine_.ended() || engine_.queue().something_waits() ||
      engine_.fast_path_due() != Deadline::max()) {
    waiters.ring(Waiter::kThread);
  }
}

}  // namespace hora::collectives
