// Two threads of a rank may sleep until a message comes: the runtime's own, and a caller who waits
// for an operation and drives the runtime meanwhile. Each has a seat with a bell; one bell rings,
// that of the seat which lay down last.
//
//   until something is done: {
//     ticket = ticket_of(seat);
//     look for work and do it;
//     if (!watch() && lie_down(seat)) sleep(seat, ticket, deadline);
//   }
//
// Only the thread that drives may call lie_down() and get_up(). One that slept and finds that the
// other drives goes back to sleep: the other lies down for it when it leaves.
#pragma once

#include <cstdint>

#include "rendezvous/base/time.h"

namespace hora::collectives {

enum class Seat : std::uint32_t { kThread = 1, kCaller = 2 };

class Seats {
 public:
  virtual ~Seats() = default;

  virtual std::uint32_t ticket_of(Seat seat) const = 0;
  // Looks out for a short while (memory/futex.h) instead of sleeping at once.
  // True when something has come.
  virtual bool watch() = 0;
  // From now on whatever comes rings this seat's bell. False when something has come already: then
  // nobody is to sleep.
  virtual bool lie_down(Seat seat) = 0;
  virtual void get_up() = 0;
  // Until the bell rings, or has rung since the ticket was taken, or the deadline.
  virtual void sleep(Seat seat, std::uint32_t ticket, Deadline deadline) = 0;
  virtual void ring(Seat seat) = 0;
  // The seat of the thread that drives: poll() and flush() sleep there.
  virtual void sit(Seat seat) = 0;
};

}  // namespace hora::collectives
