// SPDX-License-Identifier: Apache-2.0
// Prepared operations: started again and again, together with submissions and other plans; the same
// bits as those of submissions; and ranks that disagree on a plan. HORA_TEST_ROUNDS: more rounds
// than the few of the default run.
#include <algorithm>
#include <atomic>
#include <cstring>
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
using collectives::Plan;

namespace {

constexpr std::chrono::minutes kTimeout{1};

// A plan with its tensors; all ranks make the same.
class Prepared {
 public:
  Prepared(Communicator& communicator, const std::string& prefix,
           const std::vector<std::int64_t>& rows, hora_dtype dtype = HORA_INT32,
           std::int32_t process_set = 0)
      : communicator_(communicator), dtype_(dtype) {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      tensors_.push_back(std::make_unique<Tensor>(dtype, std::vector<std::int64_t>{rows[i]}));
      names_.push_back(prefix + "." + std::to_string(i));
    }
    std::vector<hora_request> requests = this->requests();
    for (hora_request& request : requests) request.process_set = process_set;
    const auto outcome = communicator.prepare(requests, plan_);
    check(outcome.status == HORA_OK, "prepare: " + outcome.text);
  }
  ~Prepared() { communicator_.let_go(plan_); }
  Prepared(const Prepared&) = delete;
  Prepared& operator=(const Prepared&) = delete;

  std::vector<hora_request> requests() {
    std::vector<hora_request> requests;
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      requests.push_back(reduce_request(names_[i].c_str(), *tensors_[i], *tensors_[i]));
    }
    return requests;
  }
  void fill_all(int rank, std::int64_t seed) {
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      fill(*tensors_[i], rank, seed + static_cast<std::int64_t>(i));
    }
  }
  void start() {
    const auto outcome = communicator_.start(plan_);
    check(outcome.status == HORA_OK, "start: " + outcome.text);
  }
  hora_status wait() {
    check(communicator_.wait(plan_, Clock::now() + kTimeout), "the plan is still in flight");
    const collectives::Operation* const failed = plan_.failed();
    error_ = failed == nullptr ? "" : failed->error;
    return failed == nullptr ? HORA_OK : failed->status;
  }
  void finish(const std::vector<int>& ranks, std::int64_t seed) {
    const hora_status status = wait();
    check(status == HORA_OK, "the plan failed: " + error_);
    for (std::size_t t = 0; t < tensors_.size(); ++t) {
      // Of large ones every 37th element, which comes to each value of the pattern.
      const std::int64_t stride = tensors_[t]->count() > 2000 ? 37 : 1;
      for (std::int64_t i = 0; i < tensors_[t]->count(); i += stride) {
        const double expected =
            reduced(dtype_, HORA_SUM, ranks, seed + static_cast<std::int64_t>(t) + i);
        check(tensors_[t]->get(i) == expected,
              difference(names_[t], i, tensors_[t]->get(i), expected));
      }
    }
  }
  const std::string& error() const { return error_; }
  Plan& plan() { return plan_; }

 private:
  Communicator& communicator_;
  hora_dtype dtype_;
  std::vector<std::unique_ptr<Tensor>> tensors_;
  std::vector<std::string> names_;
  Plan plan_;
  std::string error_;
};

std::vector<int> all_of(const Communicator& communicator) {
  std::vector<int> ranks(static_cast<std::size_t>(size_of(communicator)));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

void run_all(const WorldOptions& options, const RankBody& body) {
  for (const std::string& failure : run_ranks(options, body)) CHECK(failure == "");
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("prepared: sets of any size, again and again, together with submissions") {
  WorldOptions options;
  options.size = GENERATE(1, 2, 4);
  options.backends = GENERATE("", "tcp");
  // 3: numbers are dropped all the time. With a low threshold a plan is several operations.
  options.cache_capacity = GENERATE(3, 1024);
  options.fusion_threshold_bytes = GENERATE(2000, 128 << 20);
  if (options.size == 1 && options.backends == "tcp") return;
  CAPTURE(options.size, options.backends, options.cache_capacity, options.fusion_threshold_bytes);
  run_all(options, [](Communicator& communicator) {
    const int rank = rank_of(communicator);
    const std::vector<int> all = all_of(communicator);
    // Empty tensors stand at the end and in the middle of a set; the largest is reduced in parts,
    // and the small set fits into the fast path.
    Prepared one(communicator, "one", {1});
    Prepared small(communicator, "small", {3, 0, 7, 1});
    Prepared large(communicator, "large", {300, 20'000, 1, 80'000, 0, 4'000});
    for (int round = 0; round < rounds(4); ++round) {
      for (Prepared* each : {&one, &small, &large}) each->fill_all(rank, round);
      // Alone, which may take the fast path; then all at once, in another order on each rank, and
      // together with an operation that was not prepared.
      small.start();
      small.finish(all, round);
      one.start();
      one.finish(all, round);
      for (Prepared* each : {&one, &small}) each->fill_all(rank, round);
      std::vector<Prepared*> order{&one, &small, &large};
      std::rotate(order.begin(), order.begin() + rank % 3, order.end());
      Tensor tensor(HORA_INT32, {5});
      fill(tensor, rank, round);
      for (Prepared* each : order) each->start();
      Call submitted(communicator, reduce_request("extra", tensor, tensor));
      for (Prepared* each : order) each->finish(all, round);
      submitted.finish();
      check(tensor.get(4) == reduced(HORA_INT32, HORA_SUM, all, round + 4), "extra");
    }
  });
}

TEST_CASE("prepared: the same bits as submissions") {
  WorldOptions options;
  options.size = GENERATE(2, 3);
  options.backends = GENERATE("", "tcp");
  // Other backends than shared memory add in an order that depends on what shares a step.
  options.deterministic = options.backends == "tcp";
  const hora_reduce_op op = GENERATE(HORA_SUM, HORA_AVERAGE);
  const std::int64_t most = GENERATE(9, 30'000);
  run_all(options, [&](Communicator& communicator) {
    // Numbers whose sum depends on the order of the additions, scaled before and after it.
    std::mt19937 random(static_cast<unsigned>(rank_of(communicator)));
    std::normal_distribution<double> normal;
    constexpr int kCount = 5;
    std::vector<std::unique_ptr<Tensor>> inputs, submitted, prepared;
    std::vector<std::string> names;
    std::vector<hora_request> requests;
    for (int i = 0; i < kCount; ++i) {
      const std::vector<std::int64_t> shape{1 + most * i / kCount};
      for (auto* each : {&inputs, &submitted, &prepared}) {
        each->push_back(std::make_unique<Tensor>(HORA_FLOAT32, shape));
      }
      for (std::int64_t at = 0; at < shape[0]; ++at) {
        static_cast<float*>(inputs.back()->data())[at] = static_cast<float>(normal(random));
      }
      names.push_back("bits." + std::to_string(i));
    }
    std::vector<Call> calls;
    for (std::size_t i = 0; i < kCount; ++i) {
      hora_request request = reduce_request(names[i].c_str(), *inputs[i], *submitted[i], op);
      request.prescale = 0.3;
      request.postscale = 0.7;
      calls.emplace_back(communicator, request);
      request.output.data = prepared[i]->data();
      requests.push_back(request);
    }
    for (Call& call : calls) call.finish();
    Plan plan;
    check(communicator.prepare(requests, plan).status == HORA_OK, "prepare");
    // The first round agrees on the set in full, the others by its number: the small one then takes
    // the fast path, which adds in the same order.
    for (int round = 0; round < 4; ++round) {
      for (auto& each : prepared) std::memset(each->data(), 0, 4 * std::size_t(each->count()));
      check(communicator.start(plan).status == HORA_OK, "start");
      check(communicator.wait(plan, Clock::now() + kTimeout) && plan.failed() == nullptr, "wait");
      for (std::size_t i = 0; i < kCount; ++i) {
        check(std::memcmp(prepared[i]->data(), submitted[i]->data(),
                          4 * std::size_t(prepared[i]->count())) == 0,
              "other bits in " + names[i]);
      }
    }
    communicator.let_go(plan);
  });
}

TEST_CASE("prepared: a rank that submits the tensors one by one is a mismatch for all") {
  WorldOptions options;
  options.size = 3;
  options.backends = GENERATE("", "tcp");
  const int odd = GENERATE(0, 2);
  run_all(options, [&](Communicator& communicator) {
    const int rank = rank_of(communicator);
    const std::vector<int> all = all_of(communicator);
    Prepared set(communicator, "set", {3, 4, 5});
    for (int round = 0; round < 3; ++round) {
      if (rank == odd) {
        // The first one last: the others wait by then.
        std::vector<hora_request> requests = set.requests();
        std::reverse(requests.begin(), requests.end());
        std::vector<Call> calls;
        for (const hora_request& request : requests) calls.emplace_back(communicator, request);
        for (Call& call : calls) {
          check(call.wait() == HORA_MISMATCH, "expected a mismatch, got " + call.error());
          check(contains(call.error(), "a prepared set of 3 tensors") &&
                    contains(call.error(), "one tensor") && contains(call.error(), "set.0"),
                call.error());
        }
      } else {
        set.start();
        check(set.wait() == HORA_MISMATCH, "expected a mismatch");
        check(contains(set.error(), "rank " + std::to_string(odd)), set.error());
      }
      // All go on together: nothing of the mismatch may be left in the tables of rank 0. In later
      // rounds the set has a number, and it is spelled out for the comparison.
      Call(communicator, bare_request(HORA_BARRIER)).finish();
      set.fill_all(rank, round);
      set.start();
      set.finish(all, round);
    }
  });
}

TEST_CASE("prepared: sets that differ name the tensor; a plan of one meets a submission") {
  WorldOptions options;
  options.size = 2;
  run_all(options, [&](Communicator& communicator) {
    const int rank = rank_of(communicator);
    // As many tensors and elements on both ranks: only the list distinguishes the sets, and results
    // would be wrong without it.
    Prepared set(communicator, "set", {3, rank == 0 ? 4 : 6, rank == 0 ? 5 : 3});
    set.start();
    check(set.wait() == HORA_MISMATCH, "expected a mismatch");
    check(contains(set.error(), "'set.1' of 4") && contains(set.error(), "'set.1' of 6"),
          set.error());
    // One request is not a set: with a plan on one rank and without on the other, from the fifth
    // round on by a number and on the fast path.
    Prepared one(communicator, "one", {3});
    for (int round = 0; round < 8; ++round) {
      one.fill_all(rank, round);
      if (rank == round % 2) {
        Call(communicator, one.requests().front()).finish();
      } else {
        one.start();
        one.finish({0, 1}, round);
      }
    }
  });
}

TEST_CASE("prepared: a rank that has joined takes part with nothing") {
  WorldOptions options;
  options.size = 3;
  options.backends = GENERATE("", "tcp");
  run_all(options, [&](Communicator& communicator) {
    const int rank = rank_of(communicator);
    // The data of the absent rank must lie as the tensors of the others do, piece by piece.
    Prepared set(communicator, "set", {300, 0, 20'000, 1});
    for (int round = 0; round < 6; ++round) {
      // Rank 0, which keeps the table, is absent once, too. The set has a number by then, and is
      // spelled out because a rank has joined.
      const int absent = round % 3;
      const bool all = round < 3;
      if (all || rank != absent) {
        set.fill_all(rank, round);
        set.start();
        std::vector<int> ranks = all_of(communicator);
        if (!all) ranks.erase(ranks.begin() + absent);
        set.finish(ranks, round);
      }
      Call(communicator, bare_request(HORA_JOIN)).finish();
    }
  });
}

TEST_CASE("prepared: threads with plans and submissions of several process sets") {
  WorldOptions options;
  options.size = 4;
  options.backends = GENERATE("", "tcp");
  options.process_sets = {{0, 2}, {1, 2, 3}};
  constexpr int kThreads = 3;
  run_all(options, [&](Communicator& communicator) {
    const int rank = rank_of(communicator);
    std::vector<std::thread> threads;
    std::vector<std::string> failures(kThreads);
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        try {
          std::vector<int> ranks = all_of(communicator);
          if (thread > 0) {
            const auto& own = options.process_sets[static_cast<std::size_t>(thread - 1)];
            ranks.assign(own.begin(), own.end());
            if (std::count(ranks.begin(), ranks.end(), rank) == 0) return;
          }
          Prepared set(communicator, "t" + std::to_string(thread), {thread + 1, 700, 9'000},
                       HORA_INT64, thread);
          std::mt19937 random(static_cast<unsigned>(rank * kThreads + thread));
          for (int round = 0; round < rounds(30); ++round) {
            set.fill_all(rank, round);
            Tensor tensor(HORA_INT32, {40});
            fill(tensor, rank, round);
            const std::string name = "single" + std::to_string(thread);
            hora_request request = reduce_request(name.c_str(), tensor, tensor);
            request.process_set = thread;
            // Each rank in an order of its own, and the thread that waits drives for all of them.
            const bool set_first = random() % 2 == 0;
            if (set_first) set.start();
            Call call(communicator, request);
            if (!set_first) set.start();
            if (random() % 2 == 0) call.finish();
            set.finish(ranks, round);
            call.finish();
            check(tensor.get(7) == reduced(HORA_INT32, HORA_SUM, ranks, round + 7), name);
          }
        } catch (const std::exception& failure) {
          failures[static_cast<std::size_t>(thread)] = failure.what();
          communicator.leave();  // or the others would wait
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::string& failure : failures) check(failure.empty(), failure);
    // A rank that is in fewer sets is done sooner, and would end the world for the others.
    Call(communicator, bare_request(HORA_BARRIER)).finish();
  });
}

TEST_CASE("prepared: what cannot be, and the end of the world") {
  WorldOptions options;
  options.size = 2;
  run_all(options, [](Communicator& communicator) {
    Tensor tensor(HORA_INT32, {4});
    Plan plan;
    const auto refused = [&](const std::vector<hora_request>& requests, const std::string& why) {
      const auto outcome = communicator.prepare(requests, plan);
      check(outcome.status == HORA_INVALID_ARGUMENT && contains(outcome.text, why), outcome.text);
    };
    const hora_request sum = reduce_request("x", tensor, tensor);
    refused({sum, sum}, "more than once");
    refused({sum, result_request(HORA_ALLGATHER, "y", tensor)}, "can be prepared");
    refused({bare_request(HORA_BARRIER)}, "can be prepared");
    hora_request foreign = sum;
    foreign.process_set = 17;
    refused({foreign}, "no process set 17");
    // In flight on one rank only: neither again nor together with a submission of the same name.
    Prepared set(communicator, "set", {3, 4});
    if (rank_of(communicator) == 0) {
      set.start();
      const auto again = communicator.start(set.plan());
      check(again.status == HORA_INVALID_ARGUMENT && contains(again.text, "in flight"), again.text);
      Call same(communicator, set.requests().front());
      check(same.submitted().status == HORA_INVALID_ARGUMENT, "two operations of a name");
      Call(communicator, bare_request(HORA_BARRIER)).finish();
      // Rank 1 never starts it, and has left.
      check(set.wait() == HORA_ABORTED, "expected the end, got '" + set.error() + "'");
      check(communicator.start(set.plan()).status == HORA_ABORTED, "started after the end");
    } else {
      Call(communicator, bare_request(HORA_BARRIER)).finish();
      communicator.leave();
    }
  });
}
