// SPDX-License-Identifier: Apache-2.0
// Small operations that come again one at a time go through the fast path, by which the ranks
// agree without rank 0. Whatever else happens meanwhile, the results and the errors are those of
// any other operation.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <thread>

#include "calls.h"
#include "ranks.h"
#include "tensors.h"
#include "tests/support/catch.h"

using namespace hora;
using namespace hora::test;
using collectives::Communicator;
using collectives::Operation;

namespace {

std::uint64_t runs_of(const Communicator& communicator) {
  return communicator.engine().fast_path_runs();
}

void run_all(const WorldOptions& options, const RankBody& body) {
  for (const std::string& failure : run_ranks(options, body)) CHECK(failure == "");
}

using Hosts = std::vector<std::string>;

WorldOptions world_of(int size, Hosts hosts = {}) {
  WorldOptions options;
  options.size = size;
  options.hosts = std::move(hosts);
  return options;
}

// On one host, and where a rank leads alone or others.
WorldOptions world_of_three() {
  return world_of(3, GENERATE(Hosts{}, Hosts{"a", "b", "b"}, Hosts{"a", "b", "c"}));
}

std::vector<int> all_ranks(int size) {
  std::vector<int> ranks;
  for (int rank = 0; rank < size; ++rank) ranks.push_back(rank);
  return ranks;
}

// One allreduce, checked.
void reduce(Communicator& communicator, const std::string& name, std::int64_t rows, int seed,
            hora_dtype dtype = HORA_INT32) {
  Tensor tensor(dtype, {rows});
  fill(tensor, rank_of(communicator), seed);
  Call(communicator, reduce_request(name.c_str(), tensor, tensor)).finish();
  const std::vector<int> ranks = all_ranks(size_of(communicator));
  for (std::int64_t i = 0; i < rows; ++i) {
    const double expected = reduced(dtype, HORA_SUM, ranks, seed + i);
    if (tensor.get(i) != expected) check(false, difference(name, i, tensor.get(i), expected));
  }
}

// One allgather of a few rows, other ones on each rank, checked.
void gather(Communicator& communicator, const std::string& name, int seed) {
  const auto rows_of = [](int rank) { return std::int64_t{rank % 3}; };
  Tensor input(HORA_FLOAT64, {rows_of(rank_of(communicator)), 2});
  fill(input, rank_of(communicator), seed);
  Call call(communicator, result_request(HORA_ALLGATHER, name.c_str(), input));
  call.finish();
  std::int64_t at = 0;
  for (const int rank : all_ranks(size_of(communicator))) {
    for (std::int64_t i = 0; i < rows_of(rank) * 2; ++i, ++at) {
      const double found = read_element(call.result(), HORA_FLOAT64, at);
      const double expected = value_at(HORA_FLOAT64, rank, seed + i);
      if (found != expected) check(false, difference(name, at, found, expected));
    }
  }
  check(call.operation()->result_shape.front() * 2 == at, "the number of rows");
}

}  // namespace

TEST_CASE("fast path: blocking calls give the same as submissions, whatever else is in flight") {
  WorldOptions options;
  options.size = GENERATE(1, 2, 3);
  options.backends = GENERATE("", "tcp");
  options.cache_capacity = GENERATE(3, 1024);
  CAPTURE(options.size, options.backends, options.cache_capacity);
  run_all(options, [](Communicator& communicator) {
    const int rank = rank_of(communicator);
    // More names than are kept; and now and then one that the others do not call in that way.
    for (int i = 0; i < 300; ++i) {
      const std::string name = "sum." + std::to_string(i % 11 == 0 ? i % 9 : i % 3);
      Tensor tensor(HORA_INT32, {1 + i % 2});
      fill(tensor, rank, i);
      hora_handle handle = 7;
      Tensor other(HORA_FLOAT32, {5});
      std::optional<Call> submitted;
      if (i % 17 == 0) submitted.emplace(communicator, reduce_request("extra", other, other));
      if ((i + rank) % 13 == 0) {
        Call(communicator, reduce_request(name.c_str(), tensor, tensor)).finish();
      } else {
        const auto outcome = communicator.run(reduce_request(name.c_str(), tensor, tensor),
                                              Clock::now() + std::chrono::minutes(1), &handle);
        check(outcome.status == HORA_OK, outcome.text);
        check(handle == 0, "a handle without a result");
      }
      if (submitted) submitted->finish();
      for (std::int64_t k = 0; k < tensor.count(); ++k) {
        const double expected =
            reduced(HORA_INT32, HORA_SUM, all_ranks(size_of(communicator)), i + k);
        check(tensor.get(k) == expected, difference(name, k, tensor.get(k), expected));
      }
    }
    Tensor rows(HORA_INT32, {2});
    fill(rows, rank, 5);
    hora_handle gathered = 0;
    const auto outcome =
        communicator.run(result_request(HORA_ALLGATHER, "rows", rows), Deadline::max(), &gathered);
    check(outcome.status == HORA_OK && gathered != 0, "a result without a handle");
    check(communicator.find(gathered)->result_shape.front() == 2 * size_of(communicator), "rows");
    communicator.release(gathered);
    check(communicator.run(bare_request(HORA_BARRIER), Deadline::max(), nullptr).status == HORA_OK,
          "barrier");
  });
}

TEST_CASE("fast path: blocking barriers and allgathers, whose results outlive later calls") {
  const int size = GENERATE(2, 3);
  run_all(world_of(size), [size](Communicator& communicator) {
    const int rank = rank_of(communicator);
    const auto barrier = [&](bool submits) {
      if (submits) {
        Call(communicator, bare_request(HORA_BARRIER)).finish();
        return;
      }
      const auto outcome = communicator.run(bare_request(HORA_BARRIER), Deadline::max(), nullptr);
      check(outcome.status == HORA_OK, outcome.text);
    };
    struct Gathered {
      hora_handle handle;
      int seed;
    };
    const auto check_result = [&](const Gathered& gathered) {
      const auto operation = communicator.find(gathered.handle);
      check(operation->result_shape.front() == 2 * size, "rows");
      for (int of = 0; of < size; ++of) {
        for (int row = 0; row < 2; ++row) {
          const double found = read_element(operation->result.data(), HORA_INT32, 2 * of + row);
          const double expected = value_at(HORA_INT32, of, gathered.seed + row);
          if (found != expected) check(false, difference("rows", row, found, expected));
        }
      }
      communicator.release(gathered.handle);
    };
    std::optional<Gathered> kept;
    for (int i = 0; i < 200; ++i) {
      // Now and then a rank submits what the others call.
      barrier((i + rank) % 7 == 0);
      Tensor rows(HORA_INT32, {2});
      fill(rows, rank, i);
      Gathered gathered{0, i};
      const auto outcome = communicator.run(result_request(HORA_ALLGATHER, "rows", rows),
                                            Deadline::max(), &gathered.handle);
      check(outcome.status == HORA_OK && gathered.handle != 0, outcome.text);
      if (kept) check_result(*kept);
      kept.reset();
      if (i % 5 == 0) {
        kept = gathered;
      } else {
        check_result(gathered);
      }
    }
    if (kept) check_result(*kept);
    const std::uint64_t before = runs_of(communicator);
    for (int i = 0; i < 20; ++i) barrier(false);
    check(runs_of(communicator) > before, "barriers went through rank 0");
    // As many barriers on each rank, by whichever way: the next one is the same on all.
    barrier(rank == 0);
  });
}

TEST_CASE("fast path: alltoalls and reducescatters that come again, of any size") {
  const int size = GENERATE(1, 2, 3);
  // In the last one, some ranks have more for another one than the fast path takes.
  const std::int64_t width = GENERATE(5, 3000, 9000);
  CAPTURE(size, width);
  run_all(world_of(size), [size, width](Communicator& communicator) {
    const int rank = rank_of(communicator);
    const std::vector<int> ranks = all_ranks(size);
    const auto result_of = [&](const hora_request& request, bool submits, const auto& look) {
      if (submits) {
        Call call(communicator, request);
        call.finish();
        return look(*call.operation());
      }
      hora_handle handle = 0;
      const auto outcome = communicator.run(request, Deadline::max(), &handle);
      check(outcome.status == HORA_OK && handle != 0, outcome.text);
      look(*communicator.find(handle));
      communicator.release(handle);
    };
    const auto rows = [](int from, int to) { return std::int64_t{(from + to) % 3}; };
    std::vector<std::int64_t> splits;
    std::int64_t given = 0;
    for (const int to : ranks) splits.push_back(rows(rank, to));
    for (const std::int64_t each : splits) given += each;
    for (int i = 0; i < 60; ++i) {
      const bool submits = (i + rank) % 11 == 0;
      Tensor mine(HORA_INT32, {given, width});
      fill(mine, rank, i);
      hora_request request = result_request(HORA_ALLTOALL, "exchanged", mine);
      request.splits = splits.data();
      request.split_count = size;
      result_of(request, submits, [&](const Operation& operation) {
        std::int64_t at = 0;
        check(operation.received_splits.size() == ranks.size(), "the number of splits");
        for (const int of : ranks) {
          check(operation.received_splits[static_cast<std::size_t>(of)] == rows(of, rank),
                "splits");
          std::int64_t before = 0;
          for (int to = 0; to < rank; ++to) before += rows(of, to) * width;
          for (std::int64_t k = 0; k < rows(of, rank) * width; ++k, ++at) {
            const double found = read_element(operation.result.data(), HORA_INT32, at);
            const double expected = value_at(HORA_INT32, of, i + before + k);
            if (found != expected) check(false, difference("exchanged", at, found, expected));
          }
        }
        check(operation.result_shape.front() * width == at, "the number of rows");
      });
      Tensor all(HORA_FLOAT64, {4, width});
      fill(all, rank, i);
      hora_request scatter = result_request(HORA_REDUCESCATTER, "scattered", all);
      scatter.prescale = 2;
      result_of(scatter, submits, [&](const Operation& operation) {
        const std::vector<std::int64_t> counts = collectives::even_rows(4, size);
        std::int64_t first = 0;
        for (int of = 0; of < rank; ++of) first += counts[static_cast<std::size_t>(of)] * width;
        const std::int64_t own = counts[static_cast<std::size_t>(rank)];
        check(operation.result_shape.front() == own, "the number of rows");
        for (std::int64_t k = 0; k < own * width; ++k) {
          const double found = read_element(operation.result.data(), HORA_FLOAT64, k);
          const double expected = 2 * reduced(HORA_FLOAT64, HORA_SUM, ranks, i + first + k);
          if (found != expected) check(false, difference("scattered", k, found, expected));
        }
      });
    }
    if (size > 1 && width == 5) check(runs_of(communicator) > 60, "went through rank 0");
  });
}

TEST_CASE("fast path: a blocking call whose time runs out leaves a handle") {
  run_all(world_of(2), [](Communicator& communicator) {
    const int rank = rank_of(communicator);
    Tensor tensor(HORA_INT32, {1});
    const hora_request request = reduce_request("late", tensor, tensor);
    const auto run = [&](Deadline deadline, hora_handle* handle) {
      fill(tensor, rank, 3);
      return communicator.run(request, deadline, handle);
    };
    const double expected = reduced(HORA_INT32, HORA_SUM, {0, 1}, 3);
    for (int i = 0; i < 5; ++i) {
      check(run(Deadline::max(), nullptr).status == HORA_OK && tensor.get(0) == expected, "before");
    }
    const auto soon = Clock::now() + std::chrono::milliseconds(20);
    hora_handle handle = 0;
    if (rank == 0) {
      check(run(soon, &handle).status == HORA_TIMED_OUT && handle != 0, "no handle");
      check(communicator.run(request, Deadline::max(), nullptr).status == HORA_INVALID_ARGUMENT,
            "the same name twice");
      Call(communicator, bare_request(HORA_BARRIER)).finish();
      const auto operation = communicator.find(handle);
      check(communicator.wait(*operation, Deadline::max()), "in flight");
      check(operation->status == HORA_OK && tensor.get(0) == expected, "the late one");
    } else {
      Call(communicator, bare_request(HORA_BARRIER)).finish();
      check(run(Deadline::max(), nullptr).status == HORA_OK && tensor.get(0) == expected, "late");
    }
    // The handle is of that call, not of the next one.
    Tensor next(HORA_INT32, {1});
    for (int i = 0; i < 3; ++i) {
      fill(next, rank, 3);
      const auto outcome =
          communicator.run(reduce_request("late", next, next), Deadline::max(), nullptr);
      check(outcome.status == HORA_OK && next.get(0) == expected, "after");
      if (handle == 0) continue;
      check(communicator.find(handle)->output == request.output.data, "the handle has changed");
    }
    communicator.release(handle);
  });
}

TEST_CASE("fast path: repeated small operations need no word from rank 0") {
  const Hosts hosts = GENERATE(Hosts(2), Hosts(3), Hosts(5), Hosts{"a", "b"}, Hosts{"a", "b", "a"},
                               Hosts{"a", "b", "c"}, Hosts{"a", "a", "b", "c", "c"},
                               Hosts{"a", "b", "c", "d", "e"}, Hosts{"a", "b", "c", "d"});
  const auto size = static_cast<int>(hosts.size());
  {
    INFO("hosts " << size << " " << hosts.back());
    run_all(world_of(size, hosts.front().empty() ? Hosts{} : hosts),
            [](Communicator& communicator) {
              for (int i = 0; i < 50; ++i) {
                reduce(communicator, "int", 11, i);
                reduce(communicator, "empty", 0, i);
                if (i % 10 == 0) reduce(communicator, "large", 40'000, i);  // does not fit
                reduce(communicator, "float", 500, i, HORA_FLOAT32);
                Tensor scaled(HORA_FLOAT32, {20});
                fill(scaled, rank_of(communicator), i);
                Tensor out(HORA_FLOAT32, {20});
                hora_request request = reduce_request("scaled", scaled, out, HORA_AVERAGE);
                request.prescale = 2;
                request.postscale = 8;
                Call(communicator, request).finish();
                for (std::int64_t k = 0; k < 20; ++k) {
                  const double sum =
                      reduced(HORA_FLOAT32, HORA_SUM, all_ranks(size_of(communicator)), i + k);
                  const auto expected = static_cast<float>(16 * sum / size_of(communicator));
                  check(std::abs(out.get(k) - expected) < 1e-3,
                        difference("scaled", k, out.get(k), expected));
                }
                Tensor reported(HORA_INT64, {3});
                fill(reported, rank_of(communicator), i);
                Call(communicator,
                     broadcast_request("copied", reported, reported, size_of(communicator) - 1))
                    .finish();
                for (std::int64_t k = 0; k < 3; ++k) {
                  const double expected = value_at(HORA_INT64, size_of(communicator) - 1, i + k);
                  check(reported.get(k) == expected,
                        difference("copied", k, reported.get(k), expected));
                }
                gather(communicator, "rows", i);
                Call(communicator, bare_request(HORA_BARRIER)).finish();
              }
              // Of 350, those that fit and were not the first of their name: but for the few that a
              // rank sent to rank 0 because another was late.
              check(runs_of(communicator) > 100,
                    std::to_string(runs_of(communicator)) + " by the fast path");
            });
  }
}

TEST_CASE("fast path: without a cache, or with another backend, nothing goes that way") {
  WorldOptions options = world_of(2);
  SECTION("cache") { options.cache_capacity = 0; }
  SECTION("backend") { options.backends = "tcp"; }
  run_all(options, [](Communicator& communicator) {
    for (int i = 0; i < 5; ++i) reduce(communicator, "tensor", 4, i);
    check(runs_of(communicator) == 0, "the fast path was used");
  });
}

TEST_CASE("fast path: an operation that changes is a mismatch as ever, and the job goes on") {
  run_all(world_of_three(), [](Communicator& communicator) {
    for (int round = 0; round < 5; ++round) {
      for (int i = 0; i < 4; ++i) reduce(communicator, "tensor", 6, i);
      const std::int64_t rows = rank_of(communicator) == 1 ? 7 : 6;
      Tensor tensor(HORA_INT32, {rows});
      Call call(communicator, reduce_request("tensor", tensor, tensor));
      check(call.wait() == HORA_MISMATCH, "no mismatch: " + call.error());
      check(call.error().find("rank 1 has [7]") != std::string::npos, call.error());
    }
  });
}

TEST_CASE("fast path: ranks that come with different operations first find together") {
  run_all(world_of_three(), [](Communicator& communicator) {
    for (int i = 0; i < 4; ++i) {
      reduce(communicator, "a", 5, i);
      reduce(communicator, "b", 5, i);
    }
    // Two operations of two threads; each rank begins with another one.
    for (int i = 0; i < 40; ++i) {
      std::string failure;
      const bool b_first = rank_of(communicator) == i % 3;
      std::thread other([&] {
        try {
          reduce(communicator, b_first ? "b" : "a", 5, i);
        } catch (const std::exception& thrown) {
          failure = thrown.what();
        }
      });
      reduce(communicator, b_first ? "a" : "b", 5, i);
      other.join();
      check(failure.empty(), failure);
    }
  });
}

TEST_CASE(
    "fast path: a rank that has joined, or is in another set's operation, does not delay others") {
  WorldOptions options = world_of_three();
  options.process_sets = {{0, 2}};
  run_all(options, [](Communicator& communicator) {
    const int rank = rank_of(communicator);
    for (int round = 0; round < 10; ++round) {
      for (int i = 0; i < 3; ++i) reduce(communicator, "all", 9, i);
      if (rank != 1) {
        Tensor tensor(HORA_INT32, {5});
        fill(tensor, rank, round);
        hora_request request = reduce_request("some", tensor, tensor);
        request.process_set = 1;
        Call(communicator, request).finish();
      }
      // Rank 1 joins at once, the others one allreduce later.
      if (rank != 1) {
        Tensor tensor(HORA_INT32, {9});
        fill(tensor, rank, round);
        Call(communicator, reduce_request("all", tensor, tensor)).finish();
        for (std::int64_t i = 0; i < 9; ++i) {
          const double expected = reduced(HORA_INT32, HORA_SUM, {0, 2}, round + i);
          check(tensor.get(i) == expected, difference("all", i, tensor.get(i), expected));
        }
      }
      Call(communicator, bare_request(HORA_JOIN)).finish();
    }
  });
}

TEST_CASE("fast path: one rank comes late, or ends the job instead") {
  run_all(world_of_three(), [](Communicator& communicator) {
    for (int i = 0; i < 3; ++i) reduce(communicator, "tensor", 6, i);
    // Longer than the others wait before they ask rank 0.
    SharedCounter waiting(communicator);
    Tensor tensor(HORA_INT32, {6});
    fill(tensor, rank_of(communicator), 9);
    if (rank_of(communicator) == 1) {
      const Deadline deadline = Clock::now() + std::chrono::minutes(1);
      while (waiting.value() < 2 && Clock::now() < deadline) std::this_thread::yield();
      reduce(communicator, "tensor", 6, 9);
    } else {
      Call call(communicator, reduce_request("tensor", tensor, tensor));
      check(!communicator.wait(*call.operation(), Clock::now() + std::chrono::milliseconds(300)),
            "done without rank 1");
      ++waiting.value();
      call.finish();
    }
    reduce(communicator, "tensor", 6, 10);
    if (rank_of(communicator) == 1) return communicator.leave();
    Call never(communicator, reduce_request("tensor", tensor, tensor));
    check(never.wait() == HORA_ABORTED, "not aborted");
    check(never.error().find("rank 1") != std::string::npos, never.error());
  });
}

TEST_CASE("fast path: threads that take turns, in any order, with everything else going on") {
  WorldOptions options = world_of(4, GENERATE(Hosts{}, Hosts{"a", "a", "b", "b"}));
  options.cache_capacity = GENERATE(3, 1024);
  run_all(options, [](Communicator& communicator) {
    constexpr int kThreads = 3;
    std::vector<std::string> failures(kThreads);
    std::vector<std::thread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        try {
          std::mt19937 random(static_cast<unsigned>(thread));  // the same on every rank
          for (int i = 0; i < 150; ++i) {
            const std::string name = std::to_string(thread) + "." + std::to_string(random() % 3);
            const unsigned kind = random() % 12;
            // Now and then it has another shape than before, or does not fit.
            const std::int64_t rows = kind == 0 ? 40'000 : kind == 1 ? i : 32;
            reduce(communicator, name, rows, i);
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

TEST_CASE("fast path: the same bits as by rank 0") {
  // Numbers whose sum depends on the order in which they are added.
  const auto input_of = [](int rank, int seed, std::size_t count) {
    std::mt19937 random(static_cast<unsigned>(100 * rank + seed));
    std::uniform_real_distribution<float> exponent(-20, 20);
    std::vector<float> values(count);
    for (float& value : values) value = std::exp2(exponent(random)) - 1.0F;
    return values;
  };
  WorldOptions options;
  options.hosts = GENERATE(Hosts{"a", "a", "a"}, Hosts{"a", "b", "c"},
                           Hosts{"a", "a", "a", "b", "b", "c"}, Hosts{"a", "b"},
                           Hosts{"a", "b", "c", "d"}, Hosts{"a", "a", "b", "b", "b", "c", "d"});
  options.size = static_cast<int>(options.hosts.size());
  // On one host the middle one takes two turns; four hosts reduce the larger ones in shares.
  const std::int64_t count = GENERATE(97, 3333, 8192, 16'384, 32'768);
  if (options.hosts.back() == "c" && count > 16'384) return;  // one of three hosts gives its share
  INFO(options.size << " ranks, the last on " << options.hosts.back() << ", " << count);
  std::vector<std::vector<float>> found[2];
  for (const int way : {0, 1}) {
    options.cache_capacity = way == 0 ? 0 : 1024;
    run_all(options, [&](Communicator& communicator) {
      for (int i = 0; i < 12; ++i) {
        const std::vector<float> values =
            input_of(rank_of(communicator), i, static_cast<std::size_t>(count));
        Tensor tensor(HORA_FLOAT32, {count});
        std::memcpy(tensor.data(), values.data(), values.size() * sizeof(float));
        hora_request request = reduce_request("x", tensor, tensor, HORA_AVERAGE);
        request.prescale = 3;
        Call(communicator, request).finish();
        if (rank_of(communicator) != 0) continue;
        const auto* const first = static_cast<const float*>(tensor.data());
        found[way].emplace_back(first, first + values.size());
      }
      check((runs_of(communicator) > 0) == (way == 1), "the other way");
    });
  }
  REQUIRE(found[0].size() == found[1].size());
  for (std::size_t i = 0; i < found[0].size(); ++i) {
    CHECK(std::memcmp(found[0][i].data(), found[1][i].data(), found[0][i].size() * sizeof(float)) ==
          0);
  }
}
