// SPDX-License-Identifier: Apache-2.0
// Who drives the engine: the runtime's thread, or a caller who waits for an operation anyway. A
// caller that drives saves two hand-overs between threads, most of the time of a small operation.
//
// The thread sleeps until something comes. A caller takes its place while it waits, and leaves
// everything done that has come by then.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "collectives/runtime/engine.h"
#include "collectives/runtime/operation.h"

namespace hora::collectives {

class Driver {
 public:
  explicit Driver(Engine& engine) : engine_(engine) {}

  // The thread's: until the world has ended.
  void run();
  // A caller's: until the operation is done. False when the deadline came first; a step that has
  // begun by then is finished all the same.
  bool wait_for(Operation& operation, Deadline deadline);
  // A caller has put something into the queue. `first`: the queue was empty; `alone`: nothing else
  // of this rank is in flight.
  void submitted(bool first, bool alone);

 private:
  void run_in_turns();
  bool may_take();
  // What the engine throws (it has no memory for its own lists) ends the process, as on the thread:
  // the others hear of it at once, and no caller goes on with half of a step.
  void drive(Operation& operation, Waiters& waiters, Deadline deadline) noexcept;

  Engine& engine_;
  std::mutex driving_;
  // Callers submit a set of operations and wait soon. Then the thread is not woken for what is
  // submitted, and leaves it in the queue, so that the set stays together and whoever waits takes
  // it; it only looks once in a while whether somebody submitted and did not wait.
  std::atomic<bool> callers_wait_{false};
  std::atomic<int> waiting_{0};  // callers in wait_for()
  std::atomic<bool> caller_drives_{false};
  std::atomic<bool> thread_dozes_{false};  // it does not look
  std::atomic<std::uint32_t> drives_{0};
};

}  // namespace hora::collectives
