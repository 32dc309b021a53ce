// SPDX-License-Identifier: Apache-2.0
#include "collectives/control/shm_fast_path.h"

#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "tests/support/catch.h"

using hora::collectives::ShmFastPath;

namespace {

// The paths of all ranks over one memory, and which were rung.
struct FastPaths {
  explicit FastPaths(int size, bool cores = true)
      : memory(static_cast<char*>(std::aligned_alloc(128, rounded(size))), &std::free),
        rung(static_cast<std::size_t>(size)) {
    std::memset(memory.get(), 0, rounded(size));
    for (int rank = 0; rank < size; ++rank) {
      all.push_back(std::make_unique<ShmFastPath>());
      all.back()->attach(memory.get(), rank, size, cores,
                         [this](int other) { rung[static_cast<std::size_t>(other)].fetch_add(1); });
      all.back()->set_attentive(true);
    }
  }
  static std::size_t rounded(int size) {
    return (ShmFastPath::memory_bytes(size) + 127) / 128 * 128;
  }
  ShmFastPath& operator[](int rank) { return *all[static_cast<std::size_t>(rank)]; }

  std::unique_ptr<char, decltype(&std::free)> memory;
  std::vector<std::atomic<int>> rung;
  std::vector<std::unique_ptr<ShmFastPath>> all;
};

}  // namespace

TEST_CASE("fast path: a turn is decided when all have posted, and the last one wakes who rests") {
  FastPaths fast_paths(3);
  CHECK_FALSE(fast_paths[0].has_work());
  fast_paths[0].post(7);
  CHECK(fast_paths[0].posted());
  CHECK_FALSE(fast_paths[0].decided());
  CHECK_FALSE(fast_paths[1].has_work());
  fast_paths[2].post(7);
  fast_paths[2].rest(true);
  for (const auto& count : fast_paths.rung) CHECK(count == 0);
  fast_paths[1].post(7);
  CHECK(fast_paths.rung[0] == 0);  // it polls
  CHECK(fast_paths.rung[1] == 0);
  CHECK(fast_paths.rung[2] == 1);
  for (int rank = 0; rank < 3; ++rank) {
    CHECK(fast_paths[rank].has_work());
    CHECK(fast_paths[rank].common() == 7);
    fast_paths[rank].next();
    CHECK_FALSE(fast_paths[rank].posted());
  }
}

TEST_CASE("fast path: who has not posted rests until it is called, and who is awake again polls") {
  FastPaths fast_paths(2);
  fast_paths[0].rest(true);
  CHECK_FALSE(fast_paths[0].resting());
  fast_paths[0].post(7);
  fast_paths[0].rest(true);
  CHECK(fast_paths[0].resting());
  fast_paths[0].rest(false);
  fast_paths[1].post(7);
  CHECK(fast_paths.rung[0] == 0);
  CHECK(fast_paths[0].has_work());
}

TEST_CASE("fast path: ranks that post different things all learn it") {
  FastPaths fast_paths(2);
  fast_paths[0].post(7);
  fast_paths[1].post(8);
  for (int rank = 0; rank < 2; ++rank) {
    CHECK(fast_paths[rank].decided());
    CHECK(fast_paths[rank].common() == ShmFastPath::kNothing);
    fast_paths[rank].next();
  }
  fast_paths[0].post(9);
  fast_paths[1].post(9);
  CHECK(fast_paths[0].common() == 9);
}

TEST_CASE("fast path: a rank that listens, or is called upon, learns that others wait") {
  FastPaths fast_paths(3);
  fast_paths[1].listen(true);
  CHECK_FALSE(fast_paths[1].called_upon());
  fast_paths[0].post(7);
  CHECK(fast_paths.rung[1] == 1);
  CHECK(fast_paths.rung[2] == 0);
  CHECK(fast_paths[1].called_upon());
  CHECK_FALSE(fast_paths[2].called_upon());
  fast_paths[1].post(ShmFastPath::kNothing);
  CHECK_FALSE(fast_paths[1].called_upon());
  fast_paths[0].call_upon_others();
  CHECK(fast_paths.rung[1] == 1);
  CHECK(fast_paths.rung[2] == 1);
  CHECK(fast_paths[2].called_upon());
  fast_paths[2].post(ShmFastPath::kNothing);
  for (int rank = 0; rank < 3; ++rank) {
    CHECK(fast_paths[rank].decided());
    CHECK(fast_paths[rank].common() == ShmFastPath::kNothing);
    fast_paths[rank].next();
    CHECK_FALSE(fast_paths[rank].called_upon());  // that was of the turn before
  }
}

TEST_CASE("fast path: a rank that is not attentive has no work") {
  FastPaths fast_paths(2);
  fast_paths[0].post(7);
  fast_paths[1].listen(true);
  CHECK(fast_paths[1].has_work());
  fast_paths[1].set_attentive(false);
  CHECK_FALSE(fast_paths[1].has_work());
}

TEST_CASE("fast path: tensors of every size arrive whole, turn after turn") {
  constexpr int kSize = 3;
  constexpr int kTurns = 2000;
  FastPaths fast_paths(kSize);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kSize; ++rank) {
    threads.emplace_back([&, rank] {
      ShmFastPath& fast_path = fast_paths[rank];
      std::mt19937 random(5);  // the same sizes everywhere
      for (int turn = 0; turn < kTurns; ++turn) {
        const std::size_t bytes = turn % 2 == 0 ? random() % 64 : random() % (fast_path.room() + 1);
        std::memset(fast_path.own_place(bytes), turn + rank, bytes);
        fast_path.post(static_cast<std::uint64_t>(turn) + 1);
        while (!fast_path.decided()) std::this_thread::yield();
        if (fast_path.common() != static_cast<std::uint64_t>(turn) + 1) ++wrong;
        for (int from = 0; from < kSize; ++from) {
          const char* place = fast_path.place_of(from, bytes);
          for (std::size_t i = 0; i < bytes; ++i) {
            if (place[i] != static_cast<char>(turn + from)) ++wrong;
          }
        }
        fast_path.next();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

TEST_CASE("fast path: a reduction takes two turns where shares are worth it") {
  for (const bool cores : {false, true}) {
    FastPaths two(2, cores);
    CHECK_FALSE(two[0].takes_two_turns(4 * 1024 - 1));
    CHECK(two[0].takes_two_turns(4 * 1024) == cores);
    CHECK(two[0].takes_two_turns(two[0].room()) == cores);
    FastPaths fast_paths(3, cores);
    CHECK_FALSE(fast_paths[0].takes_two_turns(64));
    for (int rank = 0; rank < 3; ++rank) {
      CHECK(fast_paths[rank].takes_two_turns(16 * 1024));
      CHECK(fast_paths[rank].takes_two_turns(4 * 1024) == cores);
    }
  }
}

TEST_CASE("fast path: all ranks see as many cores as rank 0") {
  FastPaths fast_paths(3);
  ShmFastPath bound;
  bound.attach(fast_paths.memory.get(), 2, 3, false, {});
  CHECK(bound.takes_two_turns(4 * 1024));
}

TEST_CASE("fast path: what others write to a rank's place is there in the next turn") {
  FastPaths fast_paths(2);
  constexpr std::size_t kBytes = 4096;
  for (int rank = 0; rank < 2; ++rank) {
    std::memset(fast_paths[rank].own_place(kBytes), 'a' + rank, kBytes);
    fast_paths[rank].post(7);
  }
  for (int rank = 0; rank < 2; ++rank) {
    CHECK(fast_paths[rank].place_of(1 - rank, kBytes)[kBytes - 1] == 'b' - rank);
    std::memset(fast_paths[rank].place_of(1 - rank, kBytes), 'A' + rank, kBytes);
  }
  for (int rank = 0; rank < 2; ++rank) {
    fast_paths[rank].next();
    CHECK_FALSE(fast_paths[rank].decided());
    fast_paths[rank].post(7);
  }
  for (int rank = 0; rank < 2; ++rank) {
    CHECK(fast_paths[rank].decided());
    CHECK(fast_paths[rank].own_last_place(kBytes)[0] == 'B' - rank);
    CHECK(fast_paths[rank].own_last_place(kBytes)[kBytes - 1] == 'B' - rank);
  }
}

TEST_CASE("fast path: shares of one and two turns in a row arrive whole") {
  constexpr int kSize = 3;
  constexpr int kOperations = 2000;
  FastPaths fast_paths(kSize);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kSize; ++rank) {
    threads.emplace_back([&, rank] {
      ShmFastPath& fast_path = fast_paths[rank];
      std::mt19937 random(5);  // the same sizes everywhere
      const auto meet = [&](std::uint64_t number) {
        fast_path.post(number);
        while (!fast_path.decided()) std::this_thread::yield();
        if (fast_path.common() != number) ++wrong;
      };
      for (int at = 0; at < kOperations; ++at) {
        const std::size_t share = random() % 2 == 0 ? random() % 64 : random() % 3000;
        const std::size_t bytes = kSize * share;
        const auto number = static_cast<std::uint64_t>(at) + 1;
        std::memset(fast_path.own_place(bytes), at + rank, bytes);
        meet(number);
        if (random() % 3 != 0) {
          // The sum of what all have posted, to the places of all.
          for (std::size_t i = 0; i < share; ++i) {
            const std::size_t element = static_cast<std::size_t>(rank) * share + i;
            int sum = 0;
            for (int from = 0; from < kSize; ++from)
              sum += fast_path.place_of(from, bytes)[element];
            for (int to = 0; to < kSize; ++to) {
              fast_path.place_of(to, bytes)[element] = static_cast<char>(sum);
            }
          }
          fast_path.next();
          meet(number);
          int sum = 0;
          for (int from = 0; from < kSize; ++from) sum += static_cast<char>(at + from);
          const char* const place = fast_path.own_last_place(bytes);
          for (std::size_t i = 0; i < bytes; ++i) {
            if (place[i] != static_cast<char>(sum)) ++wrong;
          }
        }
        fast_path.next();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}
