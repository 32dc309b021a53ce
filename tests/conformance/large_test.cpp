// SPDX-License-Identifier: Apache-2.0
// Tensors of more than 2^31 bytes. Needs about 9 GB, so it runs on request only: scripts/ci large
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>

#include "calls.h"
#include "ranks.h"
#include "tests/support/catch.h"

using namespace hora;
using namespace hora::test;
using collectives::Communicator;

namespace {

constexpr int kSize = 2;
// Seconds where the cores are free, minutes where they are not.
constexpr std::chrono::minutes kTimeout{10};
constexpr std::int64_t kCount = (INT64_C(1) << 31) + 4097;

unsigned char value_at(int rank, std::int64_t index) {
  return static_cast<unsigned char>((index * 7 + index / 4096 + rank) & 0x3F);
}

std::unique_ptr<unsigned char[]> filled(int rank, std::int64_t count) {
  std::unique_ptr<unsigned char[]> data(new unsigned char[static_cast<std::size_t>(count)]);
  for (std::int64_t i = 0; i < count; ++i) data[static_cast<std::size_t>(i)] = value_at(rank, i);
  return data;
}

hora_request request_on(hora_operation operation, unsigned char* data, const std::int64_t* shape) {
  hora_request request{};
  request.struct_size = sizeof request;
  request.operation = operation;
  request.name = "large";
  request.reduce_op = HORA_SUM;
  request.prescale = 1;
  request.postscale = 1;
  request.input.data = data;
  request.input.shape = shape;
  request.input.ndim = 1;
  request.input.dtype = HORA_UINT8;
  request.input.device = HORA_CPU_DEVICE;
  request.output.device = HORA_CPU_DEVICE;
  if (operation == HORA_ALLREDUCE || operation == HORA_BROADCAST) request.output = request.input;
  return request;
}

template <typename Expected>
void check_all(const unsigned char* found, std::int64_t count, const Expected& expected) {
  for (std::int64_t i = 0; i < count; ++i) {
    if (found[i] != expected(i)) check(false, "element " + std::to_string(i) + " is wrong");
  }
}

void run_large(Communicator& communicator) {
  const int rank = communicator.world().settings.rank;
  const std::int64_t shape[] = {kCount};
  {
    const auto data = filled(rank, kCount);
    Call(communicator, request_on(HORA_ALLREDUCE, data.get(), shape)).finish(kTimeout);
    check_all(data.get(), kCount, [](std::int64_t i) {
      return static_cast<unsigned char>(value_at(0, i) + value_at(1, i));
    });
  }
  {
    const auto data = filled(rank, kCount);
    hora_request request = request_on(HORA_BROADCAST, data.get(), shape);
    request.root_rank = 1;
    Call(communicator, request).finish(kTimeout);
    check_all(data.get(), kCount, [](std::int64_t i) { return value_at(1, i); });
  }
  const std::int64_t half[] = {kCount / 2};
  const auto data = filled(rank, half[0]);
  Call gathered(communicator, request_on(HORA_ALLGATHER, data.get(), half));
  gathered.finish(kTimeout);
  const auto* found = static_cast<const unsigned char*>(gathered.operation()->result.data());
  for (int from = 0; from < kSize; ++from) {
    check_all(found + from * half[0], half[0],
              [from](std::int64_t i) { return value_at(from, i); });
  }
}

}  // namespace

TEST_CASE("more than 2^31 bytes", "[.large]") {
  WorldOptions options;
  options.size = kSize;
  options.backends = GENERATE("shm", "tcp");
  const auto usable = collectives::usable_backends({});
  if (std::count(usable.begin(), usable.end(), options.backends) == 0) return;
  INFO(options.backends);
  for (const std::string& failure : run_ranks(options, run_large)) CHECK(failure == "");
}
