// SPDX-License-Identifier: Apache-2.0
// Which thread drives the engine: the runtime's thread, or a caller that waits for an operation
// anyway. A caller that drives saves two hand-overs between threads, most of the time of a small
// operation. The thread sleeps until there is work. A waiting caller drives instead of it, and
// completes all work that has arrived by then.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "collectives/runtime/engine.h"
#include "collectives/runtime/operation.h"

namespace hora::collectives {

// The caller's behaviour after it has submitted.
enum class Then { kGoesOn, kWaits };

class Driver {
 public:
  explicit Driver(Engine& engine) : engine_(engine) {}

  // The thread's: until the world has ended.
  void run();
  // A caller's: until the operation is done. False when the deadline came first; a step that has
  // begun by then is finished all the same. `then`: as given to submitted().
  bool wait_for(Operation& operation, Deadline deadline, Then then);
  // A caller's: what find() returns, a pointer to a prepared operation, without the queue. Not
  // begun when it returns null, and where something stands in the way: then it is to be submitted.
  // `late`: set if it took long; its status says how it ended. Else kDone is a success.
  template <typename Find>
  AtOnce run_at_once(const Find& find, Deadline deadline, OperationPtr& late) {
    Waiters* const waiters = engine_.waiters();
    if (waiters == nullptr) return AtOnce::kNotBegun;
    std::unique_lock<std::mutex> lock(driving_, std::try_to_lock);
    // What rings the thread has to be looked at first.
    if (!lock || !waiters->may_stay_parked()) return AtOnce::kNotBegun;
    const OperationPtr* const operation = find();
    if (operation == nullptr) return AtOnce::kNotBegun;
    AtOnce outcome = engine_.run_at_once(*operation);
    if (outcome == AtOnce::kUnderWay) {
      late = *operation;
      drive(*late, *waiters, deadline);
      if (late->done()) outcome = AtOnce::kDone;
    }
    let_go(std::move(lock), *waiters);
    return outcome;
  }
  // A caller's: function() with all that belongs to the thread that drives, unless one drives now.
  template <typename Function>
  void if_free(const Function& function) {
    if (const std::unique_lock<std::mutex> lock(driving_, std::try_to_lock); lock) function();
  }
  // A caller has put something into the queue. `first`: the queue was empty; `alone`: nothing else
  // of this rank is in flight.
  void submitted(bool first, bool alone, Then then);

 private:
  void run_in_turns();
  bool may_take();
  bool watch_for_work(Waiters& waiters);
  std::unique_lock<std::mutex> take_over(const Operation& operation, Waiters& waiters);
  // An exception of the engine (no memory for its own lists) ends the process, as on the thread:
  // the others learn it at once, and no caller goes on with half of a step.
  void drive(Operation& operation, Waiters& waiters, Deadline deadline) noexcept;
  static void let_go(std::unique_lock<std::mutex> lock, Waiters& waiters);

  Engine& engine_;
  std::mutex driving_;
  // Callers submit a set of operations and wait soon. Then submissions do not wake the thread,
  // which leaves them in the queue, so that the set stays together for the waiting caller; it only
  // looks once in a while for submissions without a wait. Each look stops a rank for some
  // microseconds, and the others wait for it: so it dozes where all callers submit and wait by one
  // call, which never leaves a submission.
  std::atomic<bool> callers_wait_{false};
  std::atomic<int> waiting_{0};  // callers in wait_for()
  std::atomic<bool> caller_drives_{false};
  std::atomic<bool> thread_dozes_{false};    // it does not look
  std::atomic<bool> thread_watches_{false};  // it drives, and has nothing to do
  std::atomic<int> takers_{0};               // callers that want to drive instead of it
  std::atomic<std::uint32_t> waits_{0};      // that ended, for what was submitted by another call
};

}  // namespace hora::collectives
