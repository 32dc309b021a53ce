// Two threads of a rank may sleep until a message comes: the runtime's own, and a caller who waits
// for an operation and drives the runtime meanwhile. Each has a waiter with a doorbell; one
// doorbell rings, that of the waiter which lay down last.
//
//   until something is done: {
//     ticket = ticket_of(waiter);
//     look for work and do it;
//     if (!watch() && park(waiter)) sleep(waiter, ticket, deadline);
//   }
//
// Only the thread that drives may call park() and unpark(). One that slept and finds that the
// other drives goes back to sleep: the other lies down for it when it leaves.
#pragma once

#include <cstdint>

#include "rendezvous/base/time.h"

namespace hora::collectives {

enum class Waiter : std::uint32_t { kThread = 1, kCaller = 2 };

class Waiters {
 public:
  virtual ~Waiters() = default;

  virtual std::uint32_t ticket_of(Waiter waiter) const = 0;
  // Looks out for a short while (memory/futex.h) instead of sleeping at once.
  // True when something has come.
  virtual bool watch() = 0;
  // From now on whatever comes rings this waiter's doorbell. False when something has come already:
  // then nobody is to sleep.
  virtual bool park(Waiter waiter) = 0;
  virtual void unpark() = 0;
  // Until the doorbell rings, or has rung since the ticket was taken, or the deadline.
  virtual void sleep(Waiter waiter, std::uint32_t ticket, Deadline deadline) = 0;
  virtual void ring(Waiter waiter) = 0;
  // The waiter of the thread that drives: poll() and flush() sleep there.
  virtual void set_driver(Waiter waiter) = 0;
};

}  // namespace hora::collectives
