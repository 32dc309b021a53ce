// SPDX-License-Identifier: Apache-2.0
// Two threads of a rank may sleep until a message arrives: the runtime's own thread, and a caller
// that waits for an operation and drives the runtime meanwhile. Each of them is a waiter with its
// own doorbell. Whatever arrives rings one doorbell only: that of the waiter that parked last.
//
//   until something is done: {
//     ticket = ticket_of(waiter);
//     look for work and do it;
//     if (!watch() && park(waiter)) sleep(waiter, ticket, deadline);
//   }
//
// Only the thread that drives may call park() and unpark(). A thread that wakes up and finds the
// other one driving goes back to sleep: the driver parks on its behalf when it leaves.
#pragma once

#include <cstdint>

#include "rendezvous/base/time.h"

namespace hora::collectives {

// kIdleThread: the thread, of a rank that takes part in nothing at the moment. Most messages of the
// others concern what its callers have not asked for yet: a sender rings it only before it sleeps
// itself. A caller that comes meanwhile reads it, without a thread in its way.
enum class Waiter : std::uint32_t { kThread = 1, kCaller = 2, kIdleThread = 3 };

class Waiters {
 public:
  virtual ~Waiters() = default;

  virtual std::uint32_t ticket_of(Waiter waiter) const = 0;
  // Whether watch() yields the core, because others of the host's ranks may need it.
  virtual bool gives_way() const = 0;
  // Polls for a short while (memory/futex.h) instead of sleeping at once. True when something has
  // arrived.
  virtual bool watch() = 0;
  // From now on whatever arrives rings this waiter's doorbell. False when something has arrived
  // already; then the caller must not sleep.
  virtual bool park(Waiter waiter) = 0;
  virtual void unpark() = 0;
  // Whether the thread is parked and may stay so while a caller polls: what the caller waits for
  // does not ring it.
  virtual bool may_stay_parked() const = 0;
  // Whether the thread was rung since it was parked. Any thread.
  virtual bool thread_was_rung() const = 0;
  // Sleeps until the doorbell rings, has rung since the ticket was taken, or the deadline passes.
  virtual void sleep(Waiter waiter, std::uint32_t ticket, Deadline deadline) = 0;
  virtual void ring(Waiter waiter) = 0;
  // Names the waiter of the thread that drives; poll() and flush() sleep on its doorbell.
  virtual void set_driver(Waiter waiter) = 0;
};

}  // namespace hora::collectives
