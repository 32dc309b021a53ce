#include "collectives/runtime/driver.h"

#include <algorithm>

namespace hora::collectives {

namespace {

// How late an operation may begin whose submitter does not wait, after many whose did.
constexpr std::chrono::milliseconds kLookForSubmissions{1};
// The ends of connections wake whoever sleeps; this bounds what a lost wake-up could cost.
constexpr std::chrono::seconds kLookAtLinks{1};

}  // namespace

void Driver::run() {
  if (engine_.seats() != nullptr) run_in_turns();
  while (!engine_.ended()) {
    const std::lock_guard<std::mutex> lock(driving_);
    engine_.step(Deadline::max());
  }
  const std::lock_guard<std::mutex> lock(driving_);
  engine_.linger();
}

void Driver::run_in_turns() {
  std::uint32_t drives = 0;
  Deadline next_look = Clock::now() + kLookAtLinks;
  while (Seats* seats = engine_.seats()) {
    const std::uint32_t ticket = seats->ticket_of(Seat::kThread);
    if (std::unique_lock<std::mutex> lock(driving_, std::try_to_lock); lock) {
      seats->get_up();
      seats->sit(Seat::kThread);
      bool worked = false;
      while (!engine_.ended() && (engine_.step(kNoWait) || (worked && seats->watch()))) {
        worked = true;
      }
      if (engine_.ended()) return;
      if (!seats->lie_down(Seat::kThread)) continue;
    }
    const bool looking = callers_wait_.load(std::memory_order_seq_cst);
    const auto now = Clock::now();
    seats->sleep(Seat::kThread, ticket, looking ? now + kLookForSubmissions : next_look);
    if (looking && drives_.load(std::memory_order_relaxed) == drives) {
      callers_wait_.store(false, std::memory_order_seq_cst);
    }
    drives = drives_.load(std::memory_order_relaxed);
    if (now >= next_look) {
      next_look = now + kLookAtLinks;
      engine_.wake();
    }
  }
}

void Driver::submitted(bool first, bool alone) {
  if (callers_wait_.load(std::memory_order_seq_cst) ? !alone : first) engine_.wake();
}

bool Driver::wait_for(Operation& operation, Deadline deadline) {
  Seats* seats = operation.done() ? nullptr : engine_.seats();
  if (seats != nullptr && (deadline == Deadline::max() || Clock::now() < deadline)) {
    if (std::unique_lock<std::mutex> lock(driving_, std::try_to_lock); lock) {
      drive(operation, *seats, deadline);
    }
  }
  return operation.wait(deadline);
}

void Driver::drive(Operation& operation, Seats& seats, Deadline deadline) {
  seats.get_up();
  seats.sit(Seat::kCaller);
  drives_.fetch_add(1, std::memory_order_relaxed);
  // The thread sleeps for long; from now on it is to look.
  if (!callers_wait_.exchange(true, std::memory_order_seq_cst)) seats.ring(Seat::kThread);
  while (!operation.done() && !engine_.ended()) {
    const std::uint32_t ticket = seats.ticket_of(Seat::kCaller);
    if (engine_.step(kNoWait) || operation.done() || seats.watch()) continue;
    const Deadline next_look = Clock::now() + kLookAtLinks;
    if (seats.lie_down(Seat::kCaller)) {
      seats.sleep(Seat::kCaller, ticket, std::min(deadline, next_look));
    }
    seats.get_up();
    const auto now = Clock::now();
    if (now >= deadline) break;
    if (now >= next_look) engine_.wake();
  }
  // Leaves nothing undone, since nobody else is awake.
  seats.sit(Seat::kThread);
  while (!engine_.ended() && !seats.lie_down(Seat::kThread)) engine_.step(kNoWait);
  if (engine_.ended()) seats.ring(Seat::kThread);
}

}  // namespace hora::collectives
