#include "collectives/runtime/operation.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>

namespace hora::collectives {

namespace {

long futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value,
           const timespec* timeout) {
  static_assert(sizeof(word) == 4);
  return syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), operation, value, timeout,
                 nullptr, 0);
}

}  // namespace

void Operation::finish(hora_status outcome, std::string text) {
  status = outcome;
  error = std::move(text);
  if (state_.exchange(kDone, std::memory_order_acq_rel) == kWaitedFor) {
    futex(state_, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr);
  }
}

bool Operation::wait(Deadline deadline) {
  while (!done()) {
    std::uint32_t expected = kInFlight;
    state_.compare_exchange_strong(expected, kWaitedFor, std::memory_order_acq_rel);
    if (expected == kDone) return true;
    timespec relative{};
    if (deadline != Deadline::max()) {
      const auto left = deadline - Clock::now();
      if (left <= Clock::duration::zero()) return done();
      const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(left).count();
      relative.tv_sec = static_cast<time_t>(ns / 1'000'000'000);
      relative.tv_nsec = static_cast<long>(ns % 1'000'000'000);
    }
    futex(state_, FUTEX_WAIT_PRIVATE, kWaitedFor,
          deadline == Deadline::max() ? nullptr : &relative);
  }
  return true;
}

}  // namespace hora::collectives
