// SPDX-License-Identifier: Apache-2.0
#include "collectives/algorithms/point_to_point.h"

#include <atomic>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numeric>
#include <thread>
#include <vector>

#include "tests/support/catch.h"
#include "tests/unit/collectives/algorithms/memory_links.h"

using namespace hora::collectives;

namespace {

constexpr std::int64_t kNever = std::int64_t{1} << 60;

// What a rank does; false: it failed.
using Work = std::function<bool(PointToPoint&, int index, ErrorText&)>;

struct Run {
  bool good = true;
  int time = 0;                 // of the last rank
  std::size_t most_posted = 0;  // bytes of receives, of any rank
};

// Global ranks differ from set indices, as in a process set.
int global(int index) { return 2 * index + 1; }

Run run(int size, PointToPoint::Options options, const Work& work) {
  test::MemoryNet net;
  std::vector<std::unique_ptr<test::MemoryLinks>> links;
  std::vector<std::int32_t> ranks;
  for (int index = 0; index < size; ++index) {
    links.push_back(std::make_unique<test::MemoryLinks>(net, global(index)));
    ranks.push_back(global(index));
  }
  std::atomic<bool> good = true;
  std::vector<std::thread> threads;
  for (int index = 0; index < size; ++index) {
    threads.emplace_back([&, index] {
      PointToPoint mine(*links[static_cast<std::size_t>(index)], ranks, index, 3, options);
      ErrorText error;
      if (!work(mine, index, error)) good = false;
    });
  }
  for (std::thread& each : threads) each.join();
  Run result;
  result.good = good && net.fits;
  for (const auto& each : links) {
    result.time = std::max(result.time, each->time());
    result.most_posted = std::max(result.most_posted, each->most_posted());
  }
  return result;
}

PointToPoint::Options doubling() { return {.allreduce = {kNever, kNever}}; }
PointToPoint::Options halving() { return {.allreduce = {0, kNever}}; }
PointToPoint::Options ring(std::int64_t segment = 512 * 1024) {
  return {.allreduce = {0, 0}, .segment_bytes = segment};
}

// So large that its rounding shows in which order ranks were added.
float operand(int index, std::int64_t i) {
  return 1.0F / static_cast<float>(1 + (i * 7 + index * 13) % 101);
}

Work allreduce(std::int64_t count, std::vector<std::vector<float>>& results, int times = 1) {
  return [=, &results](PointToPoint& mine, int index, ErrorText& error) {
    auto& data = results[static_cast<std::size_t>(index)];
    for (int time = 0; time < times; ++time) {
      data.resize(static_cast<std::size_t>(count));
      for (std::int64_t i = 0; i < count; ++i)
        data[static_cast<std::size_t>(i)] = operand(index, i);
      if (!mine.allreduce(data.data(), count, HORA_FLOAT32, HORA_SUM, error)) return false;
    }
    return true;
  };
}

std::vector<std::int64_t> uneven(int size) {
  std::vector<std::int64_t> counts;
  for (int i = 0; i < size; ++i) counts.push_back(i % 3 == 1 ? 0 : 5 + 11 * i);
  return counts;
}

}  // namespace

TEST_CASE("an allreduce gives all ranks the same bits, whatever the algorithm") {
  for (const PointToPoint::Options& options : {doubling(), ring(), ring(64)}) {
    for (int size = 2; size <= 9; ++size) {
      for (const std::int64_t count : {0, 1, 3, 63, 64, 1000}) {
        std::vector<std::vector<float>> results(static_cast<std::size_t>(size));
        REQUIRE(run(size, options, allreduce(count, results, 2)).good);
        for (const auto& each : results) CHECK(each == results.front());
        for (std::int64_t i = 0; i < count; ++i) {
          double sum = 0;
          for (int index = 0; index < size; ++index) sum += static_cast<double>(operand(index, i));
          const auto got = static_cast<double>(results.front()[static_cast<std::size_t>(i)]);
          CHECK(std::abs(got - sum) < 1e-6);
        }
      }
    }
  }
}

TEST_CASE("halving gives the bits of doubling") {
  for (const int size : {2, 4, 8, 16}) {
    for (const std::int64_t count : {1, 2, 3, 7, 63, 64, 1000, 20'000}) {
      std::vector<std::vector<float>> halved(static_cast<std::size_t>(size));
      std::vector<std::vector<float>> doubled(static_cast<std::size_t>(size));
      REQUIRE(run(size, halving(), allreduce(count, halved, 2)).good);
      REQUIRE(run(size, doubling(), allreduce(count, doubled)).good);
      CHECK(halved == doubled);
    }
  }
}

TEST_CASE("halving has room for what its ranks keep of a single element") {
  // That many halves of one element that memory for one does not hold them by chance.
  constexpr int kRanks = 256;
  std::vector<std::vector<float>> results(kRanks);
  REQUIRE(run(kRanks, halving(), allreduce(1, results)).good);
  for (const auto& each : results) CHECK(each == results.front());
}

TEST_CASE("a ring reduces each element in the order of the ring") {
  // Starting after the rank that ends up with it: as many elements as ranks, one for each.
  constexpr int kSize = 5;
  std::vector<std::vector<float>> results(kSize);
  REQUIRE(run(kSize, ring(), allreduce(kSize, results)).good);
  for (int part = 0; part < kSize; ++part) {
    float sum = operand((part + 1) % kSize, part);
    for (int hop = 2; hop <= kSize; ++hop) sum += operand((part + hop) % kSize, part);
    CHECK(results.front()[static_cast<std::size_t>(part)] == sum);
  }
}

TEST_CASE("a reduce-scatter leaves each rank with its part") {
  for (int size = 2; size <= 7; ++size) {
    const auto counts = uneven(size);
    const auto total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
    const Run done = run(size, ring(64), [&](PointToPoint& mine, int index, ErrorText& error) {
      std::vector<std::int64_t> data(static_cast<std::size_t>(total));
      for (std::size_t i = 0; i < data.size(); ++i) {
        data[i] = static_cast<std::int64_t>(i) * 100 + index;
      }
      if (!mine.reduce_scatter(data.data(), counts.data(), HORA_INT64, HORA_SUM, error)) {
        return false;
      }
      const auto before = std::accumulate(counts.begin(), counts.begin() + index, std::int64_t{0});
      for (std::int64_t i = before; i < before + counts[static_cast<std::size_t>(index)]; ++i) {
        if (data[static_cast<std::size_t>(i)] != i * 100 * size + size * (size - 1) / 2) {
          return error.set("wrong");
        }
      }
      return true;
    });
    CHECK(done.good);
  }
}

TEST_CASE("an allgather brings every part everywhere") {
  for (int size = 2; size <= 7; ++size) {
    const auto bytes = uneven(size);
    std::vector<char> expected;
    for (int index = 0; index < size; ++index) {
      expected.insert(expected.end(),
                      static_cast<std::size_t>(bytes[static_cast<std::size_t>(index)]),
                      static_cast<char>(index + 1));
    }
    const Run done = run(size, ring(64), [&](PointToPoint& mine, int index, ErrorText& error) {
      std::vector<char> data(expected.size(), 0);
      for (std::size_t i = 0; i < data.size(); ++i) {
        if (expected[i] == index + 1) data[i] = expected[i];
      }
      return mine.allgather(data.data(), bytes.data(), error) && data == expected;
    });
    CHECK(done.good);
  }
}

TEST_CASE("a broadcast reaches all ranks from any root") {
  for (int size = 2; size <= 7; ++size) {
    for (int root = 0; root < size; ++root) {
      for (const std::int64_t bytes : {0, 1, 1000, (1 << 20) + 5}) {
        if (bytes > 1000 && root != 1) continue;
        const Run done = run(size, {}, [&](PointToPoint& mine, int index, ErrorText& error) {
          std::vector<char> data(static_cast<std::size_t>(bytes), static_cast<char>(index));
          return mine.broadcast(data.data(), bytes, root, error) &&
                 data == std::vector<char>(data.size(), static_cast<char>(root));
        });
        CHECK(done.good);
      }
    }
  }
}

TEST_CASE("an alltoall gives every rank what is for it") {
  // Small ones pass all at once; of the large ones, few.
  for (const std::int64_t unit : {std::int64_t{1}, kPostedAhead / 5}) {
    const int size = 5;
    const auto bytes_of = [&](int from, int to) { return unit * ((from + 2 * to) % 4); };
    const Run done = run(size, {}, [&](PointToPoint& mine, int index, ErrorText& error) {
      std::vector<std::int64_t> sends;
      std::vector<std::int64_t> receives;
      std::vector<char> input;
      std::vector<char> expected;
      for (int other = 0; other < size; ++other) {
        sends.push_back(bytes_of(index, other));
        receives.push_back(bytes_of(other, index));
        input.resize(input.size() + static_cast<std::size_t>(sends.back()),
                     static_cast<char>(10 * index + other));
        expected.resize(expected.size() + static_cast<std::size_t>(receives.back()),
                        static_cast<char>(10 * other + index));
      }
      std::vector<char> output(expected.size());
      return mine.alltoall(input.data(), sends.data(), output.data(), receives.data(), error) &&
             output == expected;
    });
    CHECK(done.good);
    CHECK(done.most_posted <= static_cast<std::size_t>(kPostedAhead));
  }
}

TEST_CASE("no rank leaves a barrier before all ranks arrive") {
  for (int size = 1; size <= 9; ++size) {
    std::atomic<int> came = 0;
    const Run done = run(size, {}, [&](PointToPoint& mine, int, ErrorText& error) {
      ++came;
      return mine.barrier(error) && came == size;
    });
    CHECK(done.good);
  }
}

// In times that a message takes from rank to rank. The first one waits for the word of its receive;
// all later ones find it there.
TEST_CASE("an operation waits for the word of a receive once") {
  std::vector<std::vector<float>> results(9);
  const auto time_of = [&](int size, PointToPoint::Options options) {
    const Run done = run(size, options, allreduce(1 << 16, results));
    REQUIRE(done.good);
    return done.time;
  };
  CHECK(time_of(2, doubling()) == 1 + 1);
  CHECK(time_of(4, doubling()) == 1 + 2);
  CHECK(time_of(8, doubling()) == 1 + 3);
  CHECK(time_of(3, doubling()) == 1 + 2);  // while rank 2 gives its share, rank 1 sends
  CHECK(time_of(4, halving()) == 1 + 4);
  CHECK(time_of(8, halving()) == 1 + 6);
  CHECK(time_of(2, ring()) == 1 + 2);
  CHECK(time_of(4, ring()) == 1 + 6);
  CHECK(time_of(4, ring(4096)) == 1 + 6);  // segments follow each other

  const auto barrier = [](PointToPoint& mine, int, ErrorText& error) {
    return mine.barrier(error);
  };
  CHECK(run(8, {}, barrier).time == 1 + 3);
  const auto broadcast = [](PointToPoint& mine, int, ErrorText& error) {
    char byte = 0;
    return mine.broadcast(&byte, 1, 0, error);
  };
  CHECK(run(8, {}, broadcast).time == 1 + 3);
  const auto alltoall = [](PointToPoint& mine, int, ErrorText& error) {
    std::vector<std::int64_t> one(8, 1);
    std::vector<char> input(8);
    std::vector<char> output(8);
    return mine.alltoall(input.data(), one.data(), output.data(), one.data(), error);
  };
  CHECK(run(8, {}, alltoall).time == 1 + 1);
}

TEST_CASE("no more is posted ahead than agreed") {
  std::vector<std::vector<float>> results(3);
  const std::int64_t count = 3 * kPostedAhead / 4;  // more than is posted at a time
  const Run done = run(3, ring(), allreduce(count, results));
  CHECK(done.good);
  CHECK(done.most_posted == static_cast<std::size_t>(kPostedAhead));
  for (const auto& each : results) CHECK(each == results.front());
}

TEST_CASE("an error names the peer whose message could not be posted") {
  test::MemoryNet net;
  test::MemoryLinks links(net, 0);
  PointToPoint mine(links, {0, 7, 5}, 0, 1, ring());
  std::vector<float> data(3);
  ErrorText error;
  // Two parts of the sum and two complete ones are received first.
  links.refuse_after(4);
  CHECK_FALSE(mine.allreduce(data.data(), 3, HORA_FLOAT32, HORA_SUM, error));
  CHECK(std::string(error.text) == "sending to rank 7: no more messages");

  test::MemoryLinks others(net, 0);
  PointToPoint doubles(others, {0, 7, 5}, 0, 2, doubling());
  others.refuse_after(0);
  CHECK_FALSE(doubles.allreduce(data.data(), 3, HORA_FLOAT32, HORA_SUM, error));
  CHECK(std::string(error.text) == "receiving from rank 5: no more messages");
}
