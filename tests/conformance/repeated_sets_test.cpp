// SPDX-License-Identifier: Apache-2.0
// A set of tensors that comes again in every round, as in training, and what breaks the habit in
// the middle of it: a rank that comes late with a tensor, a tensor more, another shape everywhere
// or on one rank, another order, a rank that has joined. Every result is checked, and every error.
//
// HORA_TEST_ROUNDS: more rounds than the few of the default run.
#include <algorithm>
#include <memory>
#include <random>

#include "calls.h"
#include "ranks.h"
#include "tensors.h"
#include "tests/support/catch.h"
#include "tests/support/rounds.h"

using namespace hora;
using namespace hora::test;
using collectives::Communicator;

namespace {

constexpr int kSize = 4;
constexpr int kTensors = 40;

enum class Deviation { kNone, kLate, kMore, kOtherShape, kOneOtherShape, kOtherOrder, kJoin };

// What all ranks know of a round.
struct Round {
  Deviation deviation = Deviation::kNone;
  int who = 0;
  int which = 0;  // tensor
  int number = 0;
};

Round round_of(int number) {
  std::mt19937 random(static_cast<unsigned>(number));
  Round round;
  round.number = number;
  // Two of three rounds are like the one before.
  if (random() % 3 == 0) round.deviation = static_cast<Deviation>(1 + random() % 6);
  round.who = static_cast<int>(random() % kSize);
  round.which = static_cast<int>(random() % kTensors);
  return round;
}

std::int64_t rows_of(const Round& round, int tensor, int rank) {
  std::int64_t rows = 1 + (tensor * 37) % 900;
  if (tensor != round.which) return rows;
  if (round.deviation == Deviation::kOtherShape) rows += 3;
  if (round.deviation == Deviation::kOneOtherShape && rank == round.who) rows += 5;
  return rows;
}

struct Part {
  std::unique_ptr<Tensor> tensor;
  std::unique_ptr<Call> call;
};

Part start(Communicator& communicator, const Round& round, int tensor) {
  const int rank = rank_of(communicator);
  Part part;
  part.tensor =
      std::make_unique<Tensor>(HORA_INT32, std::vector<std::int64_t>{rows_of(round, tensor, rank)});
  fill(*part.tensor, rank, tensor + round.number);
  const std::string name = "set." + std::to_string(tensor);
  part.call = std::make_unique<Call>(communicator,
                                     reduce_request(name.c_str(), *part.tensor, *part.tensor));
  return part;
}

void finish(const Round& round, int tensor, Part& part, const std::vector<int>& at_work) {
  const std::string name = "set." + std::to_string(tensor);
  if (round.deviation == Deviation::kOneOtherShape && tensor == round.which) {
    check(part.call->wait() == HORA_MISMATCH, name + ": expected a mismatch");
    const std::string text = part.call->error();
    for (const std::string& wanted :
         {name, "rank " + std::to_string(round.who),
          "[" + std::to_string(rows_of(round, tensor, round.who)) + "]",
          "[" + std::to_string(rows_of(round, tensor, (round.who + 1) % kSize)) + "]"}) {
      check(text.find(wanted) != std::string::npos, "no " + wanted + " in: " + text);
    }
    return;
  }
  part.call->finish();
  for (std::int64_t i = 0; i < part.tensor->count(); ++i) {
    const double expected = reduced(HORA_INT32, HORA_SUM, at_work, tensor + round.number + i);
    check(part.tensor->get(i) == expected, difference(name, i, part.tensor->get(i), expected));
  }
}

void live(Communicator& communicator, const Round& round) {
  const int rank = rank_of(communicator);
  std::vector<int> all;
  for (int each = 0; each < kSize; ++each) all.push_back(each);
  std::vector<int> others = all;
  others.erase(others.begin() + round.who);
  const bool joins = round.deviation == Deviation::kJoin;
  // Of a rank that joins the others miss everything after `which`.
  const int count = kTensors + (round.deviation == Deviation::kMore ? 1 : 0);
  std::vector<int> order;
  for (int tensor = 0; tensor < count; ++tensor) {
    if (joins && rank == round.who && tensor > round.which) break;
    order.push_back(tensor);
  }
  if (round.deviation == Deviation::kOtherOrder && rank == round.who) {
    std::mt19937 random(static_cast<unsigned>(round.number));
    std::shuffle(order.begin(), order.end(), random);
  }
  if (round.deviation == Deviation::kLate && rank == round.who) {
    order.erase(std::find(order.begin(), order.end(), round.which));
    order.push_back(round.which);
  }
  std::vector<Part> parts(static_cast<std::size_t>(count));
  const auto part_of = [&](int tensor) -> Part& { return parts[static_cast<std::size_t>(tensor)]; };
  for (const int tensor : order) {
    // So late that the others wait for it.
    if (round.deviation == Deviation::kLate && rank == round.who && tensor == round.which) {
      for (const int before : order) {
        if (before != tensor) finish(round, before, part_of(before), all);
      }
    }
    part_of(tensor) = start(communicator, round, tensor);
  }
  for (const int tensor : order) {
    if (round.deviation == Deviation::kLate && rank == round.who && tensor != round.which) continue;
    finish(round, tensor, part_of(tensor), joins && tensor > round.which ? others : all);
  }
  if (joins) Call(communicator, bare_request(HORA_JOIN)).finish();
}

}  // namespace

TEST_CASE("repeated sets: deviations in the middle of a set, and the set again") {
  WorldOptions options;
  options.size = kSize;
  // Without shared memory the ranks are driven by their own threads.
  options.backends = GENERATE("", "tcp");
  options.cache_capacity = options.backends.empty() ? GENERATE(10, 1024) : 1024;
  CAPTURE(options.cache_capacity, options.backends);
  const auto failures = run_ranks(options, [](Communicator& communicator) {
    for (int number = 0; number < rounds(16); ++number) {
      const Round round = round_of(number);
      try {
        live(communicator, round);
      } catch (const std::exception& thrown) {
        check(false, "round " + std::to_string(number) + ", deviation " +
                         std::to_string(static_cast<int>(round.deviation)) + ": " + thrown.what());
      }
    }
  });
  for (const std::string& failure : failures) CHECK(failure == "");
}

TEST_CASE("repeated sets: groups that come again, together with others and in another order") {
  WorldOptions options;
  options.size = kSize;
  options.backends = GENERATE("", "tcp");
  options.cache_capacity = GENERATE(20, 1024);
  CAPTURE(options.cache_capacity, options.backends);
  const auto failures = run_ranks(options, [](Communicator& communicator) {
    const int rank = rank_of(communicator);
    for (int number = 0; number < rounds(16); ++number) {
      const Round round = round_of(number);
      std::vector<Tensor> tensors;
      std::vector<std::string> names;
      for (int tensor = 0; tensor < kTensors; ++tensor) {
        tensors.emplace_back(HORA_INT32, std::vector<std::int64_t>{rows_of(Round{}, tensor, rank)});
        fill(tensors.back(), rank, tensor + number);
        names.push_back("group." + std::to_string(tensor));
      }
      const auto request = [&](int tensor) {
        const auto at = static_cast<std::size_t>(tensor);
        return reduce_request(names[at].c_str(), tensors[at], tensors[at]);
      };
      // Three groups of twelve and four alone; the size of the first changes at times.
      const int first = round.deviation == Deviation::kOtherShape ? 11 : 12;
      std::vector<Call> calls;
      const auto submit = [&](int begin, int end) {
        std::vector<hora_request> group;
        for (int tensor = begin; tensor < end; ++tensor) group.push_back(request(tensor));
        calls.emplace_back(communicator, group);
      };
      if (round.deviation == Deviation::kOtherOrder && rank == round.who) submit(24, 36);
      submit(0, first);
      submit(first, 24);
      if (calls.size() == 2) submit(24, 36);
      for (int tensor = 36; tensor < kTensors; ++tensor) {
        calls.emplace_back(communicator, request(tensor));
      }
      for (Call& each : calls) each.finish();
      for (int tensor = 0; tensor < kTensors; ++tensor) {
        const Tensor& result = tensors[static_cast<std::size_t>(tensor)];
        for (std::int64_t i = 0; i < result.count(); ++i) {
          const double expected = reduced(HORA_INT32, HORA_SUM, {0, 1, 2, 3}, tensor + number + i);
          check(result.get(i) == expected,
                difference("round " + std::to_string(number), i, result.get(i), expected));
        }
      }
    }
  });
  for (const std::string& failure : failures) CHECK(failure == "");
}
