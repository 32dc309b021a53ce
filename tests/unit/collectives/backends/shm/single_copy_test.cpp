// SPDX-License-Identifier: Apache-2.0
#include "collectives/backends/shm/single_copy.h"

#include <sys/mman.h>

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <fstream>
#include <functional>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "collectives/backends/shm/movements.h"
#include "collectives/backends/shm/nodes.h"
#include "collectives/backends/shm/reductions.h"
#include "tests/support/catch.h"

using namespace hora::collectives;

namespace {

// Ranks of one process: what a set's ranks tell each other while a backend is made.
class Table {
 public:
  explicit Table(int size) : given_(static_cast<std::size_t>(size)) {}

  std::vector<std::string> exchange(int rank, std::string mine) {
    std::unique_lock<std::mutex> lock(mutex_);
    const std::uint64_t round = rounds_;
    given_[static_cast<std::size_t>(rank)] = std::move(mine);
    if (++came_ == given_.size()) {
      came_ = 0;
      ++rounds_;
      result_ = given_;
      changed_.notify_all();
    }
    changed_.wait(lock, [&] { return rounds_ > round; });
    return result_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> given_;
  std::vector<std::string> result_;
  std::size_t came_ = 0;
  std::uint64_t rounds_ = 0;
};

class TableServices final : public Services {
 public:
  TableServices(Table& table, int rank, const char* wanted)
      : table_(table), rank_(rank), wanted_(wanted) {}
  bool exchange(const void* data, std::size_t bytes, bool, const void* const** received,
                const std::size_t** lengths, ErrorText&) noexcept override {
    all_ = table_.exchange(rank_, std::string(static_cast<const char*>(data), bytes));
    pointers_.clear();
    lengths_.clear();
    for (const std::string& each : all_) {
      pointers_.push_back(each.data());
      lengths_.push_back(each.size());
    }
    *received = pointers_.data();
    *lengths = lengths_.data();
    return true;
  }
  const char* setting(const char* name) noexcept override {
    return std::string(name) == "HORA_SHM_SINGLE_COPY" ? wanted_ : nullptr;
  }
  void note(const char* text) noexcept override { notes_ += std::string(text) + "\n"; }
  const std::string& notes() const { return notes_; }

 private:
  Table& table_;
  int rank_;
  const char* wanted_;
  std::string notes_;
  std::vector<std::string> all_;
  std::vector<const void*> pointers_;
  std::vector<std::size_t> lengths_;
};

using Body = std::function<void(shm::Rings&, shm::SingleCopy&)>;

// `nodes`: what each rank says of its memory; by default the truth. `notes` is told rank 0's.
void run(int size, const std::function<const char*(int)>& wanted, const Body& body,
         const std::vector<int>& nodes = {}, std::string* notes = nullptr) {
  Table table(size);
  std::vector<std::int32_t> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  std::atomic<int> opened{0};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      TableServices services(table, rank, wanted(rank));
      GroupContext group;
      group.index = group.rank = group.local_rank = rank;
      group.size = group.world_size = group.local_size = size;
      group.ranks = ranks.data();
      group.job = "job";
      group.services = &services;
      shm::Rings rings;
      shm::SingleCopy single_copy(rings);
      ErrorText error;
      if (!rings.open(group, shm::SingleCopy::desk_bytes(), error)) return;
      rings.tell_node(nodes.empty() ? shm::own_node() : nodes[static_cast<std::size_t>(rank)]);
      if (!single_copy.try_out(group, error)) return;
      rings.look_at_nodes(group);
      if (rank == 0 && notes != nullptr) *notes = services.notes();
      ++opened;
      body(rings, single_copy);
    });
  }
  for (std::thread& thread : threads) thread.join();
  REQUIRE(opened == size);
}

const char* always(int) { return "1"; }

// Some system forbids it: then there is nothing to test but that this is found out.
bool allowed() {
  std::atomic<bool> possible{false};
  run(1, always, [&](shm::Rings&, shm::SingleCopy& single) { possible = single.possible(); });
  return possible;
}

// Memory of the kernel that this process can read and no other, nor itself in the same way.
const void* unreadable() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    unsigned long begin = 0;
    if (line.find("[vvar]") != std::string::npos && std::sscanf(line.c_str(), "%lx", &begin) == 1) {
      return reinterpret_cast<const void*>(begin);
    }
  }
  return nullptr;
}

}  // namespace

TEST_CASE("single copy: fused, scaled, in place and not, on any number of ranks") {
  if (!allowed()) return;
  for (int size : {1, 2, 3, 5}) {
    for (const bool in_place : {false, true}) {
      for (const double prescale : {1.0, 0.5}) {
        std::atomic<int> wrong{0};
        run(size, always, [&](shm::Rings& rings, shm::SingleCopy& single) {
          for (int round = 0; round < 3; ++round) {
            const std::int64_t counts[] = {1001, 0, 70'003, 5};
            std::vector<std::vector<float>> inputs;
            std::vector<std::vector<float>> outputs;
            std::vector<Piece> pieces;
            for (std::int64_t count : counts) {
              auto& input = inputs.emplace_back(static_cast<std::size_t>(count));
              for (std::size_t i = 0; i < input.size(); ++i) {
                input[i] = static_cast<float>((i + static_cast<std::size_t>(round)) % 31) +
                           static_cast<float>(100 * rings.index());
              }
              outputs.emplace_back(input.size());
            }
            for (std::size_t i = 0; i < inputs.size(); ++i) {
              pieces.push_back(
                  {inputs[i].data(), in_place ? inputs[i].data() : outputs[i].data(), counts[i]});
            }
            Step step;
            step.operation = HORA_ALLREDUCE;
            step.dtype = HORA_FLOAT32;
            step.prescale = prescale;
            step.postscale = 4;
            step.pieces = pieces.data();
            step.piece_count = static_cast<std::int32_t>(pieces.size());
            shm::Work work;
            work.assign(step);
            ErrorText error;
            if (!single.suits(work)) ++wrong;
            if (single.allreduce(work, error) != shm::SingleCopy::Outcome::kDone) ++wrong;
            for (const Piece& piece : pieces) {
              const auto* found = static_cast<const float*>(piece.output);
              for (std::int64_t i = 0; i < piece.count; ++i) {
                const auto value = static_cast<double>((i + round) % 31);
                const double sum = size * value + 100.0 * (size - 1) * size / 2;
                if (found[i] != static_cast<float>(sum * prescale * 4)) ++wrong;
              }
            }
          }
        });
        CAPTURE(size, in_place, prescale);
        CHECK(wrong == 0);
      }
    }
  }
}

TEST_CASE("single copy: where one rank does not want it, none does it") {
  std::atomic<int> possible{0};
  run(
      3, [](int rank) { return rank == 1 ? "0" : "1"; },
      [&](shm::Rings&, shm::SingleCopy& single) {
        if (single.possible()) ++possible;
      });
  CHECK(possible == 0);
}

TEST_CASE("single copy: memory that others cannot read is noticed before anything is done") {
  const void* const hidden = unreadable();
  if (!allowed() || hidden == nullptr) return;
  std::atomic<int> elsewhere{0};
  std::atomic<int> done{0};
  run(2, always, [&](shm::Rings& rings, shm::SingleCopy& single) {
    std::vector<char> input(50'000, 1);
    std::vector<char> output(50'000);
    std::vector<char> small(64);
    // Rank 1's second tensor is of that kind, in every other operation.
    for (int round = 0; round < 4; ++round) {
      const bool hide = rings.index() == 1 && round % 2 == 0;
      const Piece pieces[] = {{input.data(), output.data(), 50'000},
                              {hide ? hidden : small.data(), small.data(), 64}};
      Step step;
      step.operation = HORA_ALLREDUCE;
      step.pieces = pieces;
      step.piece_count = 2;
      shm::Work work;
      work.assign(step);
      ErrorText error;
      const auto outcome = single.allreduce(work, error);
      if (outcome == shm::SingleCopy::Outcome::kElsewhere && round % 2 == 0) ++elsewhere;
      if (outcome == shm::SingleCopy::Outcome::kDone && round % 2 == 1) ++done;
      if (round % 2 == 0) rings.barrier();  // as the other way would
    }
  });
  CHECK(elsewhere == 4);
  CHECK(done == 4);
}

TEST_CASE("memory nodes: collectives turn to the ranks node by node, and answer the same") {
  for (const auto& nodes :
       std::vector<std::vector<int>>{{}, {0, 0, 1, 1}, {0, 1, 0, 1, 0}, {shm::kAnyNode, 0, 0}}) {
    const int size = nodes.empty() ? 3 : static_cast<int>(nodes.size());
    std::atomic<int> wrong{0};
    std::string notes;
    const auto body = [&](shm::Rings& rings, shm::SingleCopy&) {
      constexpr std::int64_t kCount = 700'001;
      const auto value = [](int rank, std::int64_t i) {
        return static_cast<float>(i % 31 + 100 * rank);
      };
      std::vector<float> input(kCount);
      std::vector<float> output(kCount);
      for (std::int64_t i = 0; i < kCount; ++i) {
        input[static_cast<std::size_t>(i)] = value(rings.index(), i);
      }
      Piece piece{input.data(), output.data(), kCount};
      Step step;
      step.operation = HORA_ALLREDUCE;
      step.dtype = HORA_FLOAT32;
      step.pieces = &piece;
      step.piece_count = 1;
      shm::Work work;
      work.assign(step);
      shm::Reductions reductions(rings);
      if (!reductions.allreduce_in_turns(work, rings.part_bytes())) ++wrong;
      for (std::int64_t i = 0; i < kCount; ++i) {
        const float sum = static_cast<float>(size * (i % 31) + 50 * (size - 1) * size);
        if (output[static_cast<std::size_t>(i)] != sum) ++wrong;
      }
      const std::vector<std::int64_t> counts(static_cast<std::size_t>(size), kCount);
      std::vector<float> all(static_cast<std::size_t>(size * kCount));
      piece.output = all.data();
      step.operation = HORA_ALLGATHER;
      step.receive_counts = counts.data();
      work.assign(step);
      if (!shm::allgather(rings, work)) ++wrong;
      for (int rank = 0; rank < size; ++rank) {
        for (std::int64_t i = 0; i < kCount; i += 1001) {
          if (all[static_cast<std::size_t>(rank * kCount + i)] != value(rank, i)) ++wrong;
        }
      }
    };
    run(
        size, [](int) { return "0"; }, body, nodes, &notes);
    CAPTURE(size, notes);
    CHECK(wrong == 0);
    CHECK(notes.find("memory: ") != std::string::npos);
    const bool rings_moved = notes.find("this rank's rings lie ") != std::string::npos;
    CHECK(rings_moved == (!nodes.empty() && nodes[0] != shm::kAnyNode));
  }
}
