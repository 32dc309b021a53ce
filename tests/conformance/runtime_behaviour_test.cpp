// SPDX-License-Identifier: Apache-2.0
// What the runtime promises beyond right sums: any order, any thread, clear errors, process sets,
// groups, join, and an end from any state.
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <optional>
#include <random>
#include <thread>

#include "calls.h"
#include "ranks.h"
#include "tensors.h"
#include "tests/support/catch.h"
#include "tests/support/memory_store.h"

using namespace hora;
using namespace hora::test;
using collectives::Communicator;

namespace {

void run_all(const WorldOptions& options, const RankBody& body) {
  const std::vector<std::string> failures = run_ranks(options, body);
  for (std::size_t rank = 0; rank < failures.size(); ++rank) {
    INFO("rank " << rank);
    CHECK(failures[rank] == "");
  }
}

WorldOptions world_of(int size) {
  WorldOptions options;
  options.size = size;
  return options;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

void expect(Call& call, hora_status status, const std::vector<std::string>& parts) {
  const hora_status found = call.wait();
  check(found == status, std::string("expected ") + hora_status_name(status) + ", found " +
                             hora_status_name(found) + ": " + call.error());
  for (const std::string& part : parts) {
    check(has(call.error(), part), "'" + part + "' is not in: " + call.error());
  }
}

// How often the runtime's threads of this process have left their cores: "voluntary", to sleep, or
// "nonvoluntary", which counts yields, too.
long switches_of_threads(const std::string& kind) {
  long switches = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm") >> std::ws, name);
    std::ifstream status(task.path() / "status");
    const std::string key = kind + "_ctxt_switches:";
    for (std::string line; name == "hora-runtime" && std::getline(status, line);) {
      if (line.starts_with(key)) switches += std::stol(line.substr(key.size()));
    }
  }
  return switches;
}

long sleeps_of_threads() { return switches_of_threads("voluntary"); }

}  // namespace

TEST_CASE("mismatch: every kind is an error on all ranks, and the job goes on") {
  for (int size : {2, 4}) {
    run_all(world_of(size), [](Communicator& communicator) {
      const bool odd = rank_of(communicator) == 1;
      Tensor three(HORA_FLOAT32, {3, 2});
      Tensor four(HORA_FLOAT32, {4, 2});
      Tensor whole(HORA_INT32, {3, 2});
      Tensor wide(HORA_FLOAT32, {3, 5});
      {
        Tensor& mine = odd ? four : three;
        Call call(communicator, reduce_request("shape", mine, mine));
        expect(call, HORA_MISMATCH, {"'shape'", "rank 1 has [4, 2]", "[3, 2]"});
      }
      {
        Tensor& mine = odd ? whole : three;
        Call call(communicator, reduce_request("dtype", mine, mine));
        expect(call, HORA_MISMATCH, {"'dtype'", "rank 1 has int32", "float32"});
      }
      {
        Call call(communicator, reduce_request("op", three, three, odd ? HORA_MAX : HORA_SUM));
        expect(call, HORA_MISMATCH, {"'op'", "rank 1 has max", "sum"});
      }
      {
        hora_request request = reduce_request("scale", three, three);
        request.prescale = odd ? 0.5 : 1.0;
        Call call(communicator, request);
        expect(call, HORA_MISMATCH, {"'scale'", "rank 1 has prescale 0.5"});
      }
      {
        Call call(communicator, broadcast_request("root", three, three, odd ? 1 : 0));
        expect(call, HORA_MISMATCH, {"'root'", "rank 1 has 1"});
      }
      {
        Call call(communicator, odd ? broadcast_request("what", three, three, 0)
                                    : reduce_request("what", three, three));
        expect(call, HORA_MISMATCH, {"'what'", "rank 1 has broadcast", "allreduce"});
      }
      {
        Call call(communicator, result_request(HORA_ALLGATHER, "columns", odd ? wide : three));
        expect(call, HORA_MISMATCH, {"'columns'", "rank 1 has [3, 5]"});
      }
      {
        Call call(communicator, result_request(HORA_REDUCESCATTER, "rows", odd ? four : three));
        expect(call, HORA_MISMATCH, {"'rows'", "rank 1 has [4, 2]"});
      }
      fill(three, rank_of(communicator));
      Call(communicator, reduce_request("after", three, three)).finish();
    });
  }
}

TEST_CASE("wrong arguments are this rank's own error, and nothing is sent") {
  run_all(world_of(2), [](Communicator& communicator) {
    Tensor tensor(HORA_FLOAT32, {4});
    Tensor other(HORA_FLOAT32, {5});
    Tensor flags(HORA_BOOL, {4});
    Tensor scalar(HORA_FLOAT32, {});
    const auto refuse = [&](hora_request request, const std::string& part) {
      Call call(communicator, request);
      expect(call, HORA_INVALID_ARGUMENT, {part});
    };
    hora_request request = reduce_request("x", tensor, tensor);
    request.name = nullptr;
    refuse(request, "needs a name");
    refuse(reduce_request("x", tensor, other), "the output must have the input's shape");
    request = reduce_request("x", tensor, tensor);
    request.input.data = nullptr;
    refuse(request, "input.data is NULL");
    request = reduce_request("x", tensor, tensor);
    request.input.dtype = 99;
    refuse(request, "unknown dtype 99");
    request = reduce_request("x", tensor, tensor);
    request.process_set = 7;
    refuse(request, "no process set 7");
    refuse(reduce_request("x", flags, flags, HORA_AVERAGE), "bool tensors have no average");
    refuse(broadcast_request("x", tensor, tensor, 2), "root rank 2 is not in the process set");
    refuse(result_request(HORA_ALLGATHER, "x", scalar), "at least one dimension");
    request = result_request(HORA_ALLTOALL, "x", other);
    refuse(request, "must be a multiple");
    const std::int64_t splits[] = {3, 3};
    request.splits = splits;
    request.split_count = 2;
    refuse(request, "add up to 6 rows, but the tensor has 5");
    request.split_count = 1;
    refuse(request, "1 splits for 2 ranks");
    request = reduce_request("x", tensor, tensor);
    const std::int64_t impossible[] = {INT64_C(1) << 40, INT64_C(1) << 40};
    request.input.shape = impossible;
    request.input.ndim = 2;
    refuse(request, "impossible");
    request = reduce_request("x", tensor, tensor);
    request.struct_size = 8;
    refuse(request, "struct_size");
    Call(communicator, reduce_request("x", tensor, tensor)).finish();
  });
}

TEST_CASE("blocking calls: the runtime's threads sleep meanwhile") {
  run_all(world_of(2), [](Communicator& communicator) {
    constexpr int kCalls = 200;
    const auto reduce = [&](const char* name, Tensor& tensor) {
      const auto outcome =
          communicator.run(reduce_request(name, tensor, tensor), Deadline::max(), nullptr);
      check(outcome.status == HORA_OK, outcome.text);
    };
    // Too large for the fast path: each call sends a request, and rank 0 a response.
    Tensor large(HORA_FLOAT32, {64 * 1024});
    Tensor quiet(HORA_INT32, {1});
    // Other work on the machine wakes them now and then, but not in each round.
    for (int round = 0; quiet.get(0) == 0 && round < 20; ++round) {
      const long before = sleeps_of_threads();
      for (int i = 0; i < kCalls; ++i) reduce("large", large);
      quiet.set(0, rank_of(communicator) == 0 && sleeps_of_threads() - before < kCalls / 20);
      reduce("quiet", quiet);
    }
    check(quiet.get(0) == 1, "they wake up again and again");
  });
}

TEST_CASE("blocking calls: a caller takes over from a thread that watches on the caller's core") {
  constexpr int kCalls = 200;
  cpu_set_t before;
  REQUIRE(sched_getaffinity(0, sizeof before, &before) == 0);
  // More ranks than CPUs, so that they yield, and all on one.
  const int size = std::max(4, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)) + 1);
  if (size > 9) return;  // the ranks take long in turns
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
  // While a thread goes on, it switches several times for each call.
  std::atomic<long> switches = LONG_MAX;
  const long most = kCalls * size;
  // Other work on the machine keeps them busy now and then, but not in each world.
  for (int world = 0; switches >= most && world < 5; ++world) {
    run_all(world_of(size), [&](Communicator& communicator) {
      Tensor tensor(HORA_INT32, {1});
      const auto so_far = [] {
        return switches_of_threads("voluntary") + switches_of_threads("nonvoluntary");
      };
      {
        // No caller waits for it, so the thread has it to do, and watches for more.
        Call left(communicator, reduce_request("left", tensor, tensor));
        const Deadline deadline = Clock::now() + std::chrono::minutes(1);
        while (!left.operation()->done() && Clock::now() < deadline) std::this_thread::yield();
        left.finish();
      }
      const long begin = so_far();
      for (int i = 0; i < kCalls; ++i) {
        const auto outcome =
            communicator.run(reduce_request("x", tensor, tensor), Deadline::max(), nullptr);
        check(outcome.status == HORA_OK, outcome.text);
      }
      if (rank_of(communicator) == 0) switches = so_far() - begin;
    });
  }
  CHECK(switches < most);
  REQUIRE(sched_setaffinity(0, sizeof before, &before) == 0);
}

TEST_CASE("a long wait in slices: the runtime's threads sleep meanwhile") {
  run_all(world_of(2), [](Communicator& communicator) {
    Tensor tensor(HORA_FLOAT32, {4});
    // Callers that submit, and then wait: the threads look for submissions without a wait.
    for (int i = 0; i < 20; ++i) Call(communicator, reduce_request("x", tensor, tensor)).finish();
    SharedCounter waited(communicator);
    if (rank_of(communicator) == 1) {
      const Deadline deadline = Clock::now() + std::chrono::minutes(1);
      while (waited.value() == 0 && Clock::now() < deadline) std::this_thread::yield();
      Call(communicator, reduce_request("x", tensor, tensor)).finish();
      return;
    }
    Call call(communicator, reduce_request("x", tensor, tensor));
    constexpr std::chrono::milliseconds kSlice{30};
    constexpr int kSlices = 20;
    const long before = sleeps_of_threads();
    bool done = false;
    for (int i = 0; i < kSlices && !done; ++i) {
      done = communicator.wait(*call.operation(), Clock::now() + kSlice);
    }
    const long sleeps = sleeps_of_threads() - before;
    waited.value() = 1;
    call.finish();
    check(!done, "done without rank 1");
    // A thread that looked each millisecond would have slept once in each.
    check(sleeps < kSlices * kSlice.count() / 2, std::to_string(sleeps) + " sleeps");
  });
}

TEST_CASE("a name in flight cannot be used again; afterwards it can; groups are all or none") {
  run_all(world_of(2), [](Communicator& communicator) {
    Tensor a(HORA_FLOAT32, {4});
    Tensor b(HORA_FLOAT32, {4});
    fill(a, 0);
    SharedCounter refused(communicator);
    std::unique_ptr<Call> first;
    if (rank_of(communicator) == 0) {
      first = std::make_unique<Call>(communicator, reduce_request("x", a, a));
      Call again(communicator, reduce_request("x", b, b));
      expect(again, HORA_INVALID_ARGUMENT, {"'x' is already in flight"});
      Call group(communicator,
                 std::vector<hora_request>{reduce_request("y", b, b), reduce_request("x", b, b)});
      expect(group, HORA_INVALID_ARGUMENT, {"'x' is already in flight"});
      ++refused.value();
    } else {
      // Until then x is in flight on rank 0.
      const Deadline deadline = Clock::now() + std::chrono::minutes(1);
      while (refused.value() == 0 && Clock::now() < deadline) std::this_thread::yield();
      first = std::make_unique<Call>(communicator, reduce_request("x", a, a));
    }
    first->finish();
    // Nothing of the refused group remains.
    Call(communicator, reduce_request("y", b, b)).finish();
    Call(communicator, reduce_request("x", b, b)).finish();
  });
}

TEST_CASE("groups: run together; a member that mismatches ends all of them") {
  run_all(world_of(3), [](Communicator& communicator) {
    std::vector<Tensor> tensors;
    for (int i = 0; i < 5; ++i) {
      tensors.emplace_back(HORA_FLOAT32, std::vector<std::int64_t>{10 + i});
      fill(tensors.back(), rank_of(communicator));
    }
    const std::vector<std::string> names{"g0", "g1", "g2", "g3", "g4"};
    std::vector<hora_request> requests;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      requests.push_back(reduce_request(names[i].c_str(), tensors[i], tensors[i]));
    }
    Call(communicator, requests).finish();
    for (const Tensor& tensor : tensors) {
      for (std::int64_t i = 0; i < tensor.count(); ++i) {
        check(tensor.get(i) == reduced(HORA_FLOAT32, HORA_SUM, {0, 1, 2}, i), "a group's sum");
      }
    }
    Tensor odd(HORA_FLOAT32, {99});
    if (rank_of(communicator) == 2) requests[3] = reduce_request("g3", odd, odd);
    Call wrong(communicator, requests);
    expect(wrong, HORA_MISMATCH, {"'g3'", "rank 2 has [99]"});
  });
}

TEST_CASE("process sets: static and dynamic, side by side") {
  WorldOptions options = world_of(4);
  options.process_sets = {{0, 2}, {3, 1}};
  run_all(options, [](Communicator& communicator) {
    const int rank = rank_of(communicator);
    const int set = rank % 2 == 0 ? 1 : 2;
    const std::vector<int> members =
        rank % 2 == 0 ? std::vector<int>{0, 2} : std::vector<int>{1, 3};
    Tensor tensor(HORA_INT32, {7});
    const auto reduce_in = [&](int id, const std::vector<int>& ranks, const char* name) {
      fill(tensor, rank);
      hora_request request = reduce_request(name, tensor, tensor);
      request.process_set = id;
      Call(communicator, request).finish();
      for (std::int64_t i = 0; i < 7; ++i) {
        check(tensor.get(i) == reduced(HORA_INT32, HORA_SUM, ranks, i), "a set's sum is wrong");
      }
    };
    for (int round = 0; round < 10; ++round) {
      reduce_in(set, members, "same name");
      reduce_in(0, {0, 1, 2, 3}, "same name");
    }
    hora_request foreign = reduce_request("x", tensor, tensor);
    foreign.process_set = 3 - set;
    Call refused(communicator, foreign);
    expect(refused, HORA_INVALID_ARGUMENT, {"is not in process set"});

    std::int32_t id = 0;
    auto outcome = communicator.add_process_set({3, 0, 1}, &id);
    check(outcome.status == HORA_OK, outcome.text);
    check(id == 3, "the new set's id");
    if (rank != 2) reduce_in(id, {0, 1, 3}, "dynamic");
    std::int32_t again = 0;
    outcome = communicator.add_process_set({0, 1, 3}, &again);
    check(outcome.status == HORA_INVALID_ARGUMENT && has(outcome.text, "already exists"),
          "the same set twice: " + outcome.text);
    outcome = communicator.add_process_set(
        rank == 0 ? std::vector<std::int32_t>{0, 1} : std::vector<std::int32_t>{0, 2}, &again);
    check(outcome.status == HORA_MISMATCH && has(outcome.text, "[0, 1]"),
          "sets that differ: " + outcome.text);
    outcome = communicator.add_process_set({0, 9}, &again);
    check(outcome.status == HORA_INVALID_ARGUMENT, "a rank that does not exist");
    check(communicator.remove_process_set(id).status == HORA_OK, "removing");
    check(communicator.remove_process_set(id).status == HORA_INVALID_ARGUMENT, "removing twice");
    check(communicator.remove_process_set(0).status == HORA_INVALID_ARGUMENT, "the world");
    reduce_in(0, {0, 1, 2, 3}, "after");
  });
}

TEST_CASE("process sets: ranks make and find them without the others") {
  run_all(world_of(4), [](Communicator& communicator) {
    const int rank = rank_of(communicator);
    std::int32_t id = -1;
    // Ranks 0 and 3 never ask, and rank 0 hands out the numbers.
    if (rank == 1 || rank == 2) {
      check(communicator.process_set_of({2, 1}, &id).status == HORA_OK, "no set");
      check(communicator.engine().sets().ranks(id)->size() == 2, "its ranks");
      Tensor tensor(HORA_INT32, {7});
      fill(tensor, rank);
      hora_request request = reduce_request("of two", tensor, tensor);
      request.process_set = id;
      Call(communicator, request).finish();
      check(tensor.get(3) == reduced(HORA_INT32, HORA_SUM, {1, 2}, 3), "the sum of two");
    }
    check(communicator.process_set_of({0, 1, 2, 3}, &id).status == HORA_OK && id == 0, "the world");
    check(communicator.process_set_of({4}, &id).status == HORA_INVALID_ARGUMENT, "no such rank");
    Call(communicator, bare_request(HORA_BARRIER)).finish();  // before the first of them leaves
  });
}

// Rank 0 learns of a set's barrier although it has no part in it, rank 1 does not.
TEST_CASE("process sets: a barrier of some ranks between tensors that share a step") {
  WorldOptions options = world_of(4);
  options.process_sets = {{2, 3}};
  run_all(options, [](Communicator& communicator) {
    constexpr int kTensors = 8;
    const int rank = rank_of(communicator);
    hora_request barrier = bare_request(HORA_BARRIER);
    barrier.process_set = 1;
    for (int round = 0; round < 50; ++round) {
      std::vector<std::unique_ptr<Tensor>> tensors;
      std::vector<std::unique_ptr<Call>> calls;
      for (int i = 0; i < kTensors; ++i) {
        tensors.push_back(std::make_unique<Tensor>(HORA_INT32, std::vector<std::int64_t>{i + 1}));
        fill(*tensors.back(), rank, round + i);
        const std::string name = "between." + std::to_string(i);
        calls.push_back(std::make_unique<Call>(
            communicator, reduce_request(name.c_str(), *tensors.back(), *tensors.back())));
        if (rank >= 2) calls.push_back(std::make_unique<Call>(communicator, barrier));
      }
      for (const auto& call : calls) call->finish();
      for (int i = 0; i < kTensors; ++i) {
        for (std::int64_t k = 0; k <= i; ++k) {
          const double expected = reduced(HORA_INT32, HORA_SUM, {0, 1, 2, 3}, round + i + k);
          check(tensors[static_cast<std::size_t>(i)]->get(k) == expected, "a wrong sum");
        }
      }
    }
  });
}

TEST_CASE("static process sets that cannot be end init on all ranks") {
  WorldOptions options = world_of(2);
  options.process_sets = {{0, 0}};
  for (const std::string& failure : run_ranks(options, [](Communicator&) {})) {
    CHECK(has(failure, "names a rank twice"));
  }
}

TEST_CASE("join: uneven work; the joined ranks contribute nothing to any reduction") {
  run_all(world_of(3), [](Communicator& communicator) {
    const int rank = rank_of(communicator);
    Tensor tensor(HORA_FLOAT32, {9});
    const auto reduce = [&](const char* name, hora_reduce_op op, const std::vector<int>& ranks) {
      fill(tensor, rank);
      Call(communicator, reduce_request(name, tensor, tensor, op)).finish();
      for (std::int64_t i = 0; i < 9; ++i) {
        double expected = reduced(HORA_FLOAT32, op == HORA_AVERAGE ? HORA_SUM : op, ranks, i);
        if (op == HORA_AVERAGE) expected = static_cast<float>(expected / 3);
        check(std::abs(tensor.get(i) - expected) < 1e-6,
              difference(name, i, tensor.get(i), expected));
      }
    };
    reduce("all", HORA_SUM, {0, 1, 2});
    if (rank >= 1) {
      reduce("two", HORA_SUM, {1, 2});
      reduce("least", HORA_MIN, {1, 2});
      reduce("most", HORA_MAX, {1, 2});
      reduce("times", HORA_PRODUCT, {1, 2});
      reduce("mean", HORA_AVERAGE, {1, 2});
    }
    if (rank == 2) {
      for (int i = 0; i < 20; ++i) reduce("one", HORA_SUM, {2});
    }
    Call joined(communicator, bare_request(HORA_JOIN));
    joined.finish();
    check(joined.operation()->number == 2, "the last rank to join");
    reduce("again", HORA_SUM, {0, 1, 2});
  });
}

TEST_CASE("join: with operations under way") {
  run_all(world_of(3), [](Communicator& communicator) {
    const int rank = rank_of(communicator);
    for (int round = 0; round < 50; ++round) {
      const int least = round % 3;  // ranks below have nothing to do but to join
      Tensor tensor(HORA_INT32, {9});
      fill(tensor, rank, round);
      std::optional<Call> call;
      if (rank >= least) call.emplace(communicator, reduce_request("under way", tensor, tensor));
      Call(communicator, bare_request(HORA_JOIN)).finish();
      if (!call) continue;
      call->finish();
      std::vector<int> at_work;
      for (int each = least; each < 3; ++each) at_work.push_back(each);
      for (std::int64_t k = 0; k < 9; ++k) {
        check(tensor.get(k) == reduced(HORA_INT32, HORA_SUM, at_work, round + k), "a wrong sum");
      }
    }
  });
}

TEST_CASE("random schedules: four threads on each rank, any order, checked results") {
  constexpr int kThreads = 4;
  constexpr int kPerThread = 60;
  for (int size : {2, 4}) {
    run_all(world_of(size), [](Communicator& communicator) {
      const int rank = rank_of(communicator);
      std::vector<int> ranks(static_cast<std::size_t>(size_of(communicator)));
      std::iota(ranks.begin(), ranks.end(), 0);
      std::vector<std::string> failures(kThreads);
      std::vector<std::thread> threads;
      for (int thread = 0; thread < kThreads; ++thread) {
        threads.emplace_back([&, thread] {
          try {
            // The same operations on every rank, in an order of its own.
            std::vector<int> order(kPerThread);
            std::iota(order.begin(), order.end(), 0);
            std::mt19937 random(static_cast<unsigned>(rank * 100 + thread));
            std::shuffle(order.begin(), order.end(), random);
            for (std::size_t at = 0; at < order.size();) {
              struct Running {
                std::unique_ptr<Tensor> tensor;
                std::unique_ptr<std::string> name;
                std::unique_ptr<Call> call;
                bool gather;
              };
              std::vector<Running> running;
              const std::size_t most = kPerThread;  // all: any subset could wait for another rank
              for (; at < order.size() && running.size() < most; ++at) {
                const int id = order[at];
                const auto dtype = static_cast<hora_dtype>(id % 9);
                Running one;
                one.gather = id % 4 == 3;
                one.name = std::make_unique<std::string>(std::to_string(thread) + "." +
                                                         std::to_string(id));
                one.tensor =
                    std::make_unique<Tensor>(dtype, std::vector<std::int64_t>{(id * 37) % 500 + 1});
                fill(*one.tensor, rank, id);
                one.call = std::make_unique<Call>(
                    communicator,
                    one.gather ? result_request(HORA_ALLGATHER, one.name->c_str(), *one.tensor)
                               : reduce_request(one.name->c_str(), *one.tensor, *one.tensor));
                running.push_back(std::move(one));
              }
              for (std::size_t i = 0; i < running.size(); ++i) {
                Running& one = running[i];
                const int id = order[at - running.size() + i];
                one.call->finish();
                const std::int64_t count = one.tensor->count();
                for (std::int64_t k = 0; k < count; ++k) {
                  if (one.gather) {
                    for (int from : ranks) {
                      const double found =
                          read_element(one.call->result(), one.tensor->dtype(), from * count + k);
                      check(found == value_at(one.tensor->dtype(), from, id + k),
                            "a gathered value");
                    }
                  } else {
                    check(
                        one.tensor->get(k) == reduced(one.tensor->dtype(), HORA_SUM, ranks, id + k),
                        "a reduced value");
                  }
                }
              }
            }
          } catch (const std::exception& thrown) {
            failures[static_cast<std::size_t>(thread)] = thrown.what();
          }
        });
      }
      for (std::thread& thread : threads) thread.join();
      for (const std::string& failure : failures) check(failure.empty(), failure);
    });
  }
}

TEST_CASE("shutdown: one rank's end ends all; what is in flight is aborted, nothing hangs") {
  run_all(world_of(3), [](Communicator& communicator) {
    Tensor tensor(HORA_FLOAT32, {4});
    Call(communicator, reduce_request("before", tensor, tensor)).finish();
    if (rank_of(communicator) == 1) {
      communicator.leave();
      Call late(communicator, reduce_request("late", tensor, tensor));
      expect(late, HORA_ABORTED, {"has shut down"});
      return;
    }
    Call never(communicator, reduce_request("never", tensor, tensor));
    expect(never, HORA_ABORTED, {"rank 1", "has shut down"});
  });
}

TEST_CASE("shutdown: from any state, by all ranks at once or by none") {
  for (int round = 0; round < 30; ++round) {
    run_all(world_of(3), [&](Communicator& communicator) {
      Tensor tensor(HORA_FLOAT32, {1000});
      std::vector<Call> calls;
      std::vector<std::string> names;
      for (int i = 0; i < round % 5; ++i) names.push_back("t" + std::to_string(i));
      std::vector<Tensor> tensors(names.size(), tensor);
      for (std::size_t i = 0; i < names.size(); ++i) {
        if (round % 3 == 0 && rank_of(communicator) == 2) break;  // never complete
        calls.emplace_back(communicator, reduce_request(names[i].c_str(), tensors[i], tensors[i]));
      }
      if (round % 2 == 0) communicator.leave();
      for (Call& call : calls) {
        const hora_status status = call.wait();
        check(status == HORA_OK || status == HORA_ABORTED,
              std::string("neither done nor aborted: ") + hora_status_name(status));
      }
    });
  }
}

TEST_CASE("init: ranks that do not come are named") {
  const auto store = std::make_shared<rendezvous::MemoryStore>();
  WorldOptions options = world_of(2);
  auto start = start_of(options, 0, store, "lonely");
  start.settings.start_timeout = std::chrono::milliseconds(200);
  const auto joined = Communicator::join(std::move(start));
  REQUIRE_FALSE(joined);
  CHECK(joined.error().code == ErrorCode::kTimedOut);
  CHECK(has(joined.error().message, "timed out waiting for rank 1 to start"));
}

TEST_CASE("init: a process without the job token is refused, and does not delay the ranks") {
  const auto store = std::make_shared<rendezvous::MemoryStore>();
  WorldOptions options = world_of(2);
  std::string pending;
  std::thread rank0([&] {
    const auto joined = Communicator::join(start_of(options, 0, store, "guarded"));
    if (!joined) pending = joined.error().message;
  });
  auto wrong = start_of(options, 1, store, "guarded");
  wrong.settings.rendezvous_token = "guessed";
  const auto refused = Communicator::join(std::move(wrong));
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == ErrorCode::kDenied);
  const auto accepted = Communicator::join(start_of(options, 1, store, "guarded"));
  CHECK(accepted);
  rank0.join();
  CHECK(pending == "");
}
