// SPDX-License-Identifier: Apache-2.0
// The protocol of a sleep: the waiter stores what it wants and `asleep`, issues a seq_cst fence and
// looks at the counters; the rank that advances stores its counter, issues a seq_cst fence and
// looks at `asleep`. So at least one of them sees the other's store.
#include "collectives/backends/shm/board.h"

namespace hora::collectives {

namespace {

// A sleeping rank looks again this often. It is woken normally; this bounds the cost of a lost
// wake-up, when a peer dies between its two steps.
constexpr std::chrono::milliseconds kLookAgain{50};

}  // namespace

bool Board::reached(int counter, int rank, std::uint64_t value) const {
  // Acquire pairs with the release in advance(): it makes the other rank's data visible.
  if (rank >= 0) return lines_[rank].counters[counter].load(std::memory_order_acquire) >= value;
  for (int i = 0; i < size_; ++i) {
    if (lines_[i].counters[counter].load(std::memory_order_acquire) < value) return false;
  }
  return true;
}

void Board::advance(int counter, std::uint64_t value) {
  lines_[index_].counters[counter].store(value, std::memory_order_release);
  // Either the sleeper sees the counter when it looks once more, or this rank sees that it sleeps.
  // Of several ranks that advance at the same time, the last one sees the counters of the others.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (int rank = 0; rank < size_; ++rank) {
    BoardLine& line = lines_[rank];
    if (rank == index_ || line.asleep.load(std::memory_order_acquire) == 0) continue;
    const std::int32_t wanted = line.wanted_counter.load(std::memory_order_relaxed);
    if (wanted != counter || !reached(wanted, line.wanted_rank.load(std::memory_order_relaxed),
                                      line.wanted_value.load(std::memory_order_relaxed))) {
      continue;
    }
    // The exchange lets one rank win, so each sleep costs one system call.
    if (line.asleep.exchange(0, std::memory_order_acq_rel) != 1) continue;
    spread_.wakes(lines_[index_].cpu);
    wake_all(line.asleep);
  }
}

bool Board::wait(int counter, int rank, std::uint64_t value) {
  const auto there = [&] { return reached(counter, rank, value); };
  if (spinner_.until(there)) return true;
  BoardLine& line = lines_[index_];
  // Relaxed: the release store of `asleep` below publishes these three, and advance() reads them
  // only after it has seen `asleep` (acquire).
  line.wanted_counter.store(counter, std::memory_order_relaxed);
  line.wanted_rank.store(rank, std::memory_order_relaxed);
  line.wanted_value.store(value, std::memory_order_relaxed);
  while (true) {
    line.asleep.store(1, std::memory_order_release);
    // Pairs with the fence in advance(): `asleep` is visible there before this rank looks again.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (there() || aborted()) break;
    sleep_on(line.asleep, 1, Clock::now() + kLookAgain);
  }
  line.asleep.store(0, std::memory_order_relaxed);
  spread_.woken([this](int other) -> CpuOfRank& { return lines_[other].cpu; }, size_, index_,
                spinner_.successes());
  // An abort during the last step does not undo a wait that has been satisfied.
  return there();
}

void Board::abort() {
  aborted_.store(true, std::memory_order_seq_cst);
  std::atomic<std::uint32_t>& asleep = lines_[index_].asleep;
  // Changing the word keeps a waiter that is about to sleep from sleeping. Both steps are seq_cst
  // and pair with the fence in wait(), whose look includes aborted(): either the waiter sees the
  // abort, or the exchange finds its `asleep`. A weaker exchange might run ahead of the store.
  asleep.exchange(0, std::memory_order_seq_cst);
  wake_all(asleep);
}

}  // namespace hora::collectives
