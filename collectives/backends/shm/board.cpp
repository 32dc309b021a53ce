#include "collectives/backends/shm/board.h"

namespace hora::collectives {

namespace {

// A sleeping rank looks again this often; it is woken, so this only bounds what a lost wake-up (a
// peer that died between its two steps) could cost.
constexpr std::chrono::milliseconds kLookAgain{50};

}  // namespace

bool Board::reached(int counter, int rank, std::uint64_t value) const {
  if (rank >= 0) return lines_[rank].counters[counter].load(std::memory_order_acquire) >= value;
  for (int i = 0; i < size_; ++i) {
    if (lines_[i].counters[counter].load(std::memory_order_acquire) < value) return false;
  }
  return true;
}

void Board::advance(int counter, std::uint64_t value) {
  lines_[index_].counters[counter].store(value, std::memory_order_release);
  // Either the sleeper sees the counter when it looks once more, or we see that it sleeps. Of
  // several ranks that advance at a time, the last one sees the others' counters.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (int rank = 0; rank < size_; ++rank) {
    BoardLine& line = lines_[rank];
    if (rank == index_ || line.asleep.load(std::memory_order_acquire) == 0) continue;
    const std::int32_t wanted = line.wanted_counter.load(std::memory_order_relaxed);
    if (wanted != counter || !reached(wanted, line.wanted_rank.load(std::memory_order_relaxed),
                                      line.wanted_value.load(std::memory_order_relaxed))) {
      continue;
    }
    if (line.asleep.exchange(0, std::memory_order_acq_rel) == 1) wake_all(line.asleep);
  }
}

bool Board::wait(int counter, int rank, std::uint64_t value) {
  const auto there = [&] { return reached(counter, rank, value); };
  if (spinner_.until(there)) return true;
  BoardLine& line = lines_[index_];
  line.wanted_counter.store(counter, std::memory_order_relaxed);
  line.wanted_rank.store(rank, std::memory_order_relaxed);
  line.wanted_value.store(value, std::memory_order_relaxed);
  while (true) {
    line.asleep.store(1, std::memory_order_release);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (there() || aborted()) break;
    sleep_on(line.asleep, 1, Clock::now() + kLookAgain);
  }
  line.asleep.store(0, std::memory_order_relaxed);
  return there();
}

void Board::abort() {
  aborted_.store(true, std::memory_order_seq_cst);
  std::atomic<std::uint32_t>& asleep = lines_[index_].asleep;
  asleep.exchange(0, std::memory_order_acq_rel);
  wake_all(asleep);
}

}  // namespace hora::collectives
