// SPDX-License-Identifier: Apache-2.0
// Four threads on each of eight ranks, all operations, several process sets, in any order, with
// names that come again and now and then mean something else: every result is checked. Then uneven
// work and join, several times over the same names.
//
// HORA_TEST_ROUNDS: more rounds than the few of the default run.
#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <thread>

#include "calls.h"
#include "ranks.h"
#include "tensors.h"
#include "tests/support/catch.h"
#include "tests/support/rounds.h"

using namespace hora;
using namespace hora::test;
using collectives::Communicator;

namespace {

constexpr int kSize = 8;
constexpr int kThreads = 4;
constexpr int kPerRound = 20;  // operations of a thread

const std::vector<std::vector<std::int32_t>> kSets{
    {0, 1, 2, 3, 4, 5, 6, 7}, {0, 2, 4, 6}, {1, 3, 5, 7}, {1, 2, 3, 4, 5}};

// One operation as all ranks know it.
struct Plan {
  std::string name;
  hora_operation operation;
  int set;
  std::int64_t rows;
  hora_dtype dtype;
  hora_reduce_op op;
  std::int64_t seed;

  const std::vector<std::int32_t>& ranks() const { return kSets[static_cast<std::size_t>(set)]; }
};

Plan plan_of(int thread, int place, int round) {
  // The same name, and mostly the same parameters, in every round; each fifth round differs.
  std::mt19937 random(static_cast<unsigned>(thread * 1000 + place + (round / 5) * 100'000));
  Plan plan;
  plan.name = std::to_string(thread) + "." + std::to_string(place);
  constexpr hora_operation kOperations[] = {HORA_ALLREDUCE, HORA_ALLREDUCE, HORA_ALLGATHER,
                                            HORA_BROADCAST, HORA_ALLTOALL,  HORA_REDUCESCATTER};
  plan.operation = kOperations[random() % 6];
  plan.set = static_cast<int>(random() % kSets.size());
  plan.rows = static_cast<std::int64_t>(random() % 300);
  plan.dtype = random() % 2 == 0 ? HORA_INT32 : HORA_FLOAT32;
  plan.op = random() % 2 == 0 ? HORA_SUM : HORA_MAX;
  plan.seed = place + round;
  return plan;
}

// This rank's part of it.
class Part {
 public:
  Part(Communicator& communicator, const Plan& plan, int rank) : plan_(plan) {
    const auto& ranks = plan_.ranks();
    index_ = static_cast<int>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
    std::int64_t rows = plan_.rows;
    if (plan_.operation == HORA_ALLGATHER) rows += index_;
    if (plan_.operation == HORA_ALLTOALL) rows *= static_cast<std::int64_t>(ranks.size());
    tensor_ = std::make_unique<Tensor>(plan_.dtype, std::vector<std::int64_t>{rows});
    fill(*tensor_, rank, plan_.seed);
    hora_request request{};
    switch (plan_.operation) {
      case HORA_ALLREDUCE:
        request = reduce_request(plan_.name.c_str(), *tensor_, *tensor_, plan_.op);
        break;
      case HORA_BROADCAST:
        request = broadcast_request(plan_.name.c_str(), *tensor_, *tensor_, ranks.back());
        break;
      default:
        request = result_request(plan_.operation, plan_.name.c_str(), *tensor_);
        request.reduce_op = plan_.op;
    }
    request.process_set = plan_.set;
    call_ = std::make_unique<Call>(communicator, request);
  }

  void finish() {
    call_->finish();
    const auto& ranks = plan_.ranks();
    const std::vector<int> members(ranks.begin(), ranks.end());
    const auto size = static_cast<std::int64_t>(ranks.size());
    const auto expect = [&](std::int64_t place, double found, double expected) {
      check(found == expected, difference(plan_.name, place, found, expected));
    };
    const auto reduced_at = [&](std::int64_t i) {
      return reduced(plan_.dtype, plan_.op, members, plan_.seed + i);
    };
    const auto given = [&](std::int64_t index, std::int64_t i) {
      return value_at(plan_.dtype, ranks[static_cast<std::size_t>(index)], plan_.seed + i);
    };
    switch (plan_.operation) {
      case HORA_ALLREDUCE:
        for (std::int64_t i = 0; i < plan_.rows; ++i) expect(i, tensor_->get(i), reduced_at(i));
        break;
      case HORA_BROADCAST:
        for (std::int64_t i = 0; i < plan_.rows; ++i)
          expect(i, tensor_->get(i), given(size - 1, i));
        break;
      case HORA_ALLGATHER: {
        std::int64_t place = 0;
        for (std::int64_t from = 0; from < size; ++from) {
          for (std::int64_t i = 0; i < plan_.rows + from; ++i, ++place) {
            expect(place, result(place), given(from, i));
          }
        }
        break;
      }
      case HORA_ALLTOALL:
        for (std::int64_t from = 0; from < size; ++from) {
          for (std::int64_t i = 0; i < plan_.rows; ++i) {
            expect(i, result(from * plan_.rows + i), given(from, index_ * plan_.rows + i));
          }
        }
        break;
      default: {
        const auto rows = collectives::even_rows(plan_.rows, static_cast<int>(size));
        const std::int64_t first = std::accumulate(rows.begin(), rows.begin() + index_, INT64_C(0));
        for (std::int64_t i = 0; i < rows[static_cast<std::size_t>(index_)]; ++i) {
          expect(i, result(i), reduced_at(first + i));
        }
      }
    }
  }

 private:
  double result(std::int64_t place) const {
    return read_element(call_->result(), plan_.dtype, place);
  }

  Plan plan_;
  int index_ = 0;
  std::unique_ptr<Tensor> tensor_;
  std::unique_ptr<Call> call_;
};

void work(Communicator& communicator, int thread) {
  const int rank = communicator.world().settings.rank;
  std::mt19937 random(static_cast<unsigned>(rank * 10 + thread));
  for (int round = 0; round < rounds(8); ++round) {
    std::vector<Plan> plans;
    for (int place = 0; place < kPerRound; ++place) {
      Plan plan = plan_of(thread, place, round);
      if (std::count(plan.ranks().begin(), plan.ranks().end(), rank) > 0) {
        plans.push_back(std::move(plan));
      }
    }
    std::shuffle(plans.begin(), plans.end(), random);
    std::vector<std::unique_ptr<Part>> parts;
    for (const Plan& plan : plans)
      parts.push_back(std::make_unique<Part>(communicator, plan, rank));
    std::shuffle(parts.begin(), parts.end(), random);
    for (const auto& part : parts) part->finish();
  }
}

// Rank r has some operations fewer than rank r + 1, and joins when it has none left.
void uneven_work(Communicator& communicator) {
  const int rank = communicator.world().settings.rank;
  const auto work_of = [](int of_rank) { return 3 * (of_rank % 4); };
  for (int round = 0; round < 4; ++round) {
    for (int i = 0; i < work_of(rank); ++i) {
      Tensor tensor(HORA_INT32, {17});
      fill(tensor, rank, i);
      const std::string name = "uneven." + std::to_string(i);
      Call(communicator, reduce_request(name.c_str(), tensor, tensor)).finish();
      std::vector<int> at_work;
      for (int other = 0; other < kSize; ++other) {
        if (work_of(other) > i) at_work.push_back(other);
      }
      for (std::int64_t k = 0; k < 17; ++k) {
        const double expected = reduced(HORA_INT32, HORA_SUM, at_work, i + k);
        check(tensor.get(k) == expected, difference(name, k, tensor.get(k), expected));
      }
    }
    Call(communicator, bare_request(HORA_JOIN)).finish();
  }
}

}  // namespace

TEST_CASE("random schedules: 4 threads, 8 ranks, process sets, repeated names, join") {
  WorldOptions options;
  options.size = kSize;
  options.process_sets.assign(kSets.begin() + 1, kSets.end());
  options.cache_capacity = GENERATE(0, 7, 1024);
  CAPTURE(options.cache_capacity);
  const auto failures = run_ranks(options, [](Communicator& communicator) {
    std::vector<std::string> failures(kThreads);
    std::vector<std::thread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        try {
          work(communicator, thread);
        } catch (const std::exception& thrown) {
          failures[static_cast<std::size_t>(thread)] = thrown.what();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::string& failure : failures) check(failure.empty(), failure);
    uneven_work(communicator);
  });
  for (const std::string& failure : failures) CHECK(failure == "");
}
