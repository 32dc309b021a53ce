// SPDX-License-Identifier: Apache-2.0
// Adasum against the definition, computed in double on one thread.
#include <cmath>
#include <random>

#include "calls.h"
#include "ranks.h"
#include "tensors.h"
#include "tests/support/catch.h"

using namespace hora;
using namespace hora::test;
using collectives::Communicator;

namespace {

using Vector = std::vector<double>;

// Gradients of several sizes, some alike, some not; one of them zero.
double gradient(int rank, std::int64_t index, int seed) {
  if (seed == 3 && rank == 1) return 0;
  std::minstd_rand random(static_cast<unsigned>(1 + seed * 7919 + index * 31 + rank % 3 * 131));
  random.discard(3);
  return (static_cast<double>(random() % 2001) - 1000) / 512 * (rank + 1);
}

Vector pair_up(const Vector& a, const Vector& b) {
  double dot = 0;
  double norm_a = 0;
  double norm_b = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    dot += a[i] * b[i];
    norm_a += a[i] * a[i];
    norm_b += b[i] * b[i];
  }
  const double of_a = norm_a == 0 ? 1 : 1 - dot / (2 * norm_a);
  const double of_b = norm_b == 0 ? 1 : 1 - dot / (2 * norm_b);
  Vector sum(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) sum[i] = of_a * a[i] + of_b * b[i];
  return sum;
}

// Neighbours first, then neighbouring pairs, and so on.
Vector reference(std::vector<Vector> vectors) {
  while (vectors.size() > 1) {
    std::vector<Vector> half;
    for (std::size_t i = 0; i < vectors.size(); i += 2) {
      half.push_back(pair_up(vectors[i], vectors[i + 1]));
    }
    vectors = std::move(half);
  }
  return vectors.front();
}

double tolerance(hora_dtype dtype) {
  switch (dtype) {
    case HORA_FLOAT64:
      return 1e-12;
    case HORA_FLOAT32:
      return 1e-5;
    case HORA_FLOAT16:
      return 2e-3;
    default:
      return 1.6e-2;
  }
}

void compare(Communicator& communicator, hora_dtype dtype, std::int64_t count, int seed) {
  const int size = communicator.world().settings.size;
  std::vector<Vector> inputs(static_cast<std::size_t>(size));
  Tensor probe(dtype, {count});
  for (int rank = 0; rank < size; ++rank) {
    for (std::int64_t i = 0; i < count; ++i) {
      probe.set(i, gradient(rank, i, seed));
      inputs[static_cast<std::size_t>(rank)].push_back(probe.get(i));  // as the dtype holds it
    }
  }
  const Vector& own = inputs[static_cast<std::size_t>(communicator.world().settings.rank)];
  Tensor input(dtype, {count});
  Tensor output(dtype, {count});
  for (std::int64_t i = 0; i < count; ++i) input.set(i, own[static_cast<std::size_t>(i)]);
  Call(communicator, reduce_request("g", input, output, HORA_ADASUM)).finish();
  const Vector expected = reference(inputs);
  double largest = 0;
  for (const double value : expected) largest = std::max(largest, std::abs(value));
  for (std::int64_t i = 0; i < count; ++i) {
    const double difference = std::abs(output.get(i) - expected[static_cast<std::size_t>(i)]);
    check(difference <= tolerance(dtype) * largest,
          "element " + std::to_string(i) + " of " + std::to_string(count) + ": " +
              std::to_string(output.get(i)) + ", not " +
              std::to_string(expected[static_cast<std::size_t>(i)]));
  }
  // The same bits everywhere: the smallest and the largest of each element are one.
  Tensor least(dtype, {count});
  Tensor most(dtype, {count});
  Call(communicator, reduce_request("least", output, least, HORA_MIN)).finish();
  Call(communicator, reduce_request("most", output, most, HORA_MAX)).finish();
  for (std::int64_t i = 0; i < count; ++i) {
    check(least.get(i) == most.get(i), "element " + std::to_string(i) + " differs between ranks");
  }
}

void run_all(const WorldOptions& options, const RankBody& body) {
  const std::vector<std::string> failures = run_ranks(options, body);
  for (std::size_t rank = 0; rank < failures.size(); ++rank) {
    INFO("rank " << rank << " of " << options.size << ", backends " << options.backends);
    CHECK(failures[rank] == "");
  }
}

}  // namespace

TEST_CASE("adasum: as defined, in every floating dtype, on every power of two") {
  for (const char* backends : {"shm", "tcp", "gloo"}) {
    for (const int size : {1, 2, 4, 8}) {
      WorldOptions options;
      options.size = size;
      options.backends = backends;
      run_all(options, [](Communicator& communicator) {
        int seed = 0;
        for (const auto dtype : {HORA_FLOAT64, HORA_FLOAT32, HORA_FLOAT16, HORA_BFLOAT16}) {
          for (const std::int64_t count : {1, 2, 7, 1000}) {
            compare(communicator, dtype, count, ++seed);
          }
        }
      });
    }
  }
}

TEST_CASE(
    "adasum: equal vectors are averaged, orthogonal ones added; scales, groups, no elements") {
  WorldOptions options;
  options.size = 4;
  run_all(options, [](Communicator& communicator) {
    const int rank = communicator.world().settings.rank;
    Tensor same(HORA_FLOAT32, {4});
    Tensor own(HORA_FLOAT32, {4});
    Tensor same_out(HORA_FLOAT32, {4});
    Tensor own_out(HORA_FLOAT32, {4});
    for (std::int64_t i = 0; i < 4; ++i) same.set(i, static_cast<double>(i + 1));
    for (std::int64_t i = 0; i < 4; ++i) own.set(i, i == rank ? rank + 1 : 0);
    auto scaled = reduce_request("own", own, own_out, HORA_ADASUM);
    scaled.prescale = 2;
    scaled.postscale = 0.25;
    Call(communicator, {reduce_request("same", same, same_out, HORA_ADASUM), scaled}).finish();
    for (std::int64_t i = 0; i < 4; ++i) {
      check(same_out.get(i) == static_cast<double>(i + 1), "equal vectors");
      check(own_out.get(i) == static_cast<double>(i + 1) / 2, "orthogonal vectors");
    }
    Tensor none(HORA_FLOAT32, {0});
    Tensor none_out(HORA_FLOAT32, {0});
    Call(communicator, reduce_request("none", none, none_out, HORA_ADASUM)).finish();
  });
}

TEST_CASE("adasum: what it is not for is refused where it is asked") {
  WorldOptions options;
  options.size = 3;
  run_all(options, [](Communicator& communicator) {
    Tensor real(HORA_FLOAT32, {4});
    Call three(communicator, reduce_request("x", real, real, HORA_ADASUM));
    check(three.submitted().status == HORA_INVALID_ARGUMENT, "three ranks");
    check(three.submitted().text.find("power of two") != std::string::npos, three.submitted().text);
    Tensor whole(HORA_INT32, {4});
    Call integers(communicator, reduce_request("y", whole, whole, HORA_ADASUM));
    check(integers.submitted().status == HORA_INVALID_ARGUMENT, "integers");
  });
}
