#include "collectives/control/express_lane.h"

#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "tests/support/catch.h"

using hora::collectives::ExpressLane;

namespace {

// The lanes of all ranks over one memory, and who was rung.
struct Lanes {
  explicit Lanes(int size)
      : memory(static_cast<char*>(std::aligned_alloc(128, rounded(size))), &std::free),
        rung(static_cast<std::size_t>(size)) {
    std::memset(memory.get(), 0, rounded(size));
    for (int rank = 0; rank < size; ++rank) {
      all.push_back(std::make_unique<ExpressLane>());
      all.back()->attach(memory.get(), rank, size,
                         [this](int other) { rung[static_cast<std::size_t>(other)].fetch_add(1); });
      all.back()->set_attentive(true);
    }
  }
  static std::size_t rounded(int size) {
    return (ExpressLane::memory_bytes(size) + 127) / 128 * 128;
  }
  ExpressLane& operator[](int rank) { return *all[static_cast<std::size_t>(rank)]; }

  std::unique_ptr<char, decltype(&std::free)> memory;
  std::vector<std::atomic<int>> rung;
  std::vector<std::unique_ptr<ExpressLane>> all;
};

}  // namespace

TEST_CASE(
    "express lane: a turn is decided when all have posted, and the last one wakes the others") {
  Lanes lanes(3);
  CHECK_FALSE(lanes[0].news());
  lanes[0].post(7);
  CHECK(lanes[0].posted());
  CHECK_FALSE(lanes[0].decided());
  CHECK_FALSE(lanes[1].news());
  lanes[2].post(7);
  for (const auto& count : lanes.rung) CHECK(count == 0);
  lanes[1].post(7);
  CHECK(lanes.rung[0] == 1);
  CHECK(lanes.rung[1] == 0);
  CHECK(lanes.rung[2] == 1);
  for (int rank = 0; rank < 3; ++rank) {
    CHECK(lanes[rank].news());
    CHECK(lanes[rank].common() == 7);
    lanes[rank].next();
    CHECK_FALSE(lanes[rank].posted());
  }
}

TEST_CASE("express lane: ranks that post different things all learn it") {
  Lanes lanes(2);
  lanes[0].post(7);
  lanes[1].post(8);
  for (int rank = 0; rank < 2; ++rank) {
    CHECK(lanes[rank].decided());
    CHECK(lanes[rank].common() == ExpressLane::kNothing);
    lanes[rank].next();
  }
  lanes[0].post(9);
  lanes[1].post(9);
  CHECK(lanes[0].common() == 9);
}

TEST_CASE("express lane: a rank that listens, or is called upon, learns that others wait") {
  Lanes lanes(3);
  lanes[1].listen(true);
  CHECK_FALSE(lanes[1].called_upon());
  lanes[0].post(7);
  CHECK(lanes.rung[1] == 1);
  CHECK(lanes.rung[2] == 0);
  CHECK(lanes[1].called_upon());
  CHECK_FALSE(lanes[2].called_upon());
  lanes[1].post(ExpressLane::kNothing);
  CHECK_FALSE(lanes[1].called_upon());
  lanes[0].call_upon_others();
  CHECK(lanes.rung[1] == 1);
  CHECK(lanes.rung[2] == 1);
  CHECK(lanes[2].called_upon());
  lanes[2].post(ExpressLane::kNothing);
  for (int rank = 0; rank < 3; ++rank) {
    CHECK(lanes[rank].decided());
    CHECK(lanes[rank].common() == ExpressLane::kNothing);
    lanes[rank].next();
    CHECK_FALSE(lanes[rank].called_upon());  // that was of the turn before
  }
}

TEST_CASE("express lane: who is not attentive has no news") {
  Lanes lanes(2);
  lanes[0].post(7);
  lanes[1].listen(true);
  CHECK(lanes[1].news());
  lanes[1].set_attentive(false);
  CHECK_FALSE(lanes[1].news());
}

TEST_CASE("express lane: tensors of every size arrive whole, turn after turn") {
  constexpr int kSize = 3;
  constexpr int kTurns = 2000;
  Lanes lanes(kSize);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kSize; ++rank) {
    threads.emplace_back([&, rank] {
      ExpressLane& lane = lanes[rank];
      std::mt19937 random(5);  // the same sizes everywhere
      for (int turn = 0; turn < kTurns; ++turn) {
        const std::size_t bytes = turn % 2 == 0 ? random() % 64 : random() % (lane.room() + 1);
        std::memset(lane.own_place(bytes), turn + rank, bytes);
        lane.post(static_cast<std::uint64_t>(turn) + 1);
        while (!lane.decided()) std::this_thread::yield();
        if (lane.common() != static_cast<std::uint64_t>(turn) + 1) ++wrong;
        for (int from = 0; from < kSize; ++from) {
          const char* place = lane.place_of(from, bytes);
          for (std::size_t i = 0; i < bytes; ++i) {
            if (place[i] != static_cast<char>(turn + from)) ++wrong;
          }
        }
        lane.next();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}
