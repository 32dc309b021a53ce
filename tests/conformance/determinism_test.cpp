// SPDX-License-Identifier: Apache-2.0
// HORA_DETERMINISTIC: the same inputs give the same bits, whatever was submitted together and when.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "calls.h"
#include "ranks.h"
#include "tests/support/catch.h"

using namespace hora;
using namespace hora::test;
using collectives::Communicator;

namespace {

constexpr int kSize = 4;
const std::vector<std::int64_t> kCounts{1, 3, 17, 64, 257, 1000, 4099, 30'000, 120'001};

// Numbers whose sum depends on the order in which they are added.
std::vector<float> input_of(int rank, std::size_t tensor) {
  std::mt19937 random(static_cast<unsigned>(1000 * rank + static_cast<int>(tensor)));
  std::uniform_real_distribution<float> exponent(-20, 20);
  std::vector<float> values(static_cast<std::size_t>(kCounts[tensor]));
  for (float& value : values) {
    value = std::exp2(exponent(random)) * (random() % 2 == 0 ? 1.0F : -1.0F);
  }
  return values;
}

// The results of rank 0 by tensor, when as many as `together` are submitted at a time, in that
// order.
std::vector<std::vector<float>> results(const WorldOptions& options, std::size_t together,
                                        bool backwards) {
  std::vector<std::vector<float>> found(kCounts.size());
  const auto failures = run_ranks(options, [&](Communicator& communicator) {
    const int rank = communicator.world().settings.rank;
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < kCounts.size(); ++i) order.push_back(i);
    if (backwards) std::reverse(order.begin(), order.end());
    std::vector<std::vector<float>> values;
    std::vector<std::string> names;
    for (std::size_t i = 0; i < kCounts.size(); ++i) {
      values.push_back(input_of(rank, i));
      names.push_back("t" + std::to_string(i));
    }
    for (std::size_t first = 0; first < order.size(); first += together) {
      std::vector<Call> calls;
      for (std::size_t k = first; k < std::min(order.size(), first + together); ++k) {
        const std::size_t i = order[k];
        hora_request request{};
        request.struct_size = sizeof request;
        request.operation = HORA_ALLREDUCE;
        request.name = names[i].c_str();
        request.input.data = values[i].data();
        request.input.shape = &kCounts[i];
        request.input.ndim = 1;
        request.input.dtype = HORA_FLOAT32;
        request.input.device = HORA_CPU_DEVICE;
        request.output = request.input;
        request.reduce_op = HORA_SUM;
        request.prescale = 1;
        request.postscale = 1;
        calls.emplace_back(communicator, request);
      }
      for (Call& call : calls) call.finish();
    }
    if (rank == 0) found = values;
  });
  for (const std::string& failure : failures) CHECK(failure == "");
  return found;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace

TEST_CASE("deterministic: the same bits, fused or alone, in any order") {
  WorldOptions options;
  options.size = kSize;
  options.deterministic = true;
  options.backends = GENERATE("shm", "tcp");
  const auto usable = collectives::usable_backends({});
  if (std::count(usable.begin(), usable.end(), options.backends) == 0) return;
  const auto alone = results(options, 1, false);
  for (std::size_t together : {std::size_t{3}, kCounts.size()}) {
    for (bool backwards : {false, true}) {
      const auto again = results(options, together, backwards);
      for (std::size_t i = 0; i < kCounts.size(); ++i) {
        INFO(options.backends << ", " << kCounts[i] << " elements, " << together << " at a time");
        CHECK(same_bits(alone[i], again[i]));
      }
    }
  }
}
