#include "collectives/backends/shm/board.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace hora::collectives {

namespace {

// Some 50 microseconds: longer than it takes to be woken on another core.
constexpr int kSpins = 4000;
// A sleeping rank looks again this often; it is woken, so this only bounds what a lost wake-up (a
// peer that died between its two steps) could cost.
constexpr long kLookAgainNs = 50'000'000;

long futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value,
           const timespec* timeout) {
  return syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), operation, value, timeout,
                 nullptr, 0);
}

void relax() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

}  // namespace

bool cores_for(int local_ranks) {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof cores, &cores) != 0) return false;
  // A rank that is bound to fewer cores than there are ranks is taken to have them for itself: a
  // launcher that binds gives each its own.
  const long online = sysconf(_SC_NPROCESSORS_ONLN);
  return CPU_COUNT(&cores) >= local_ranks || (CPU_COUNT(&cores) < online && online >= local_ranks);
}

void Board::advance(int counter, std::uint64_t value) {
  lines_[index_].counters[counter].store(value, std::memory_order_release);
  // Either the sleeper sees the counter when it looks once more, or we see its flag.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (int rank = 0; rank < size_; ++rank) {
    std::atomic<std::uint32_t>& asleep = lines_[rank].asleep;
    if (rank == index_ || asleep.load(std::memory_order_relaxed) == 0) continue;
    if (asleep.exchange(0, std::memory_order_acq_rel) == 1) futex(asleep, FUTEX_WAKE, 1, nullptr);
  }
}

template <typename Condition>
bool Board::wait_until(const Condition& condition) {
  for (int i = 0; i < (spin_ ? kSpins : 1); ++i) {
    if (condition()) return true;
    relax();
  }
  std::atomic<std::uint32_t>& asleep = lines_[index_].asleep;
  const timespec look_again{0, kLookAgainNs};
  while (true) {
    asleep.store(1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (condition() || aborted()) break;
    futex(asleep, FUTEX_WAIT, 1, &look_again);
  }
  asleep.store(0, std::memory_order_relaxed);
  return condition();
}

bool Board::wait_all(int counter, std::uint64_t value) {
  int reached = 0;  // the ranks below have been seen to be there
  return wait_until([&] {
    while (reached < size_ &&
           lines_[reached].counters[counter].load(std::memory_order_acquire) >= value) {
      ++reached;
    }
    return reached == size_;
  });
}

bool Board::wait_one(int counter, int rank, std::uint64_t value) {
  return wait_until(
      [&] { return lines_[rank].counters[counter].load(std::memory_order_acquire) >= value; });
}

void Board::abort() {
  aborted_.store(true, std::memory_order_seq_cst);
  std::atomic<std::uint32_t>& asleep = lines_[index_].asleep;
  asleep.exchange(0, std::memory_order_acq_rel);
  futex(asleep, FUTEX_WAKE, 1, nullptr);
}

}  // namespace hora::collectives
