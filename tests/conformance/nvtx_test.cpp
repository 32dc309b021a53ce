// SPDX-License-Identifier: Apache-2.0
// The ranges that NVIDIA's tools receive. The tool is tests/support/gpu_double/nvtx_double.cpp,
// which NVTX's own headers load; the GPU is made of host memory.
#include <cstdlib>

#include "calls.h"
#include "gpu_double.h"
#include "tensors.h"

using namespace hora;
using namespace hora::test;
using collectives::Communicator;

namespace {

WorldOptions world(bool disable) {
  WorldOptions options;
  options.size = 2;
  options.backends = "nccl,shm";
  // In the process of a rank, before it meets the others.
  options.adjust = [disable](collectives::Settings& settings) {
    setenv("NVTX_INJECTION64_PATH", HORA_NVTX_DOUBLE, 1);
    settings.no_nvtx_ranges = disable;
  };
  return options;
}

std::string ranges() { return find<const char* (*)()>(HORA_NVTX_DOUBLE, "hora_double_ranges")(); }

void sum(Communicator& communicator, const char* name, std::int64_t count) {
  Tensor tensor(HORA_FLOAT32, {count});
  fill(tensor, rank_of(communicator));
  Call(communicator, reduce_request(name, tensor, tensor)).finish();
}

}  // namespace

TEST_CASE("nvtx: a range for each operation, from its request to its result") {
  expect_all_well(world(false), [](Communicator& communicator) {
    sum(communicator, "first", 10);
    sum(communicator, "second", 100);
    Call(communicator, bare_request(HORA_BARRIER)).finish();  // no tensor, no range
    check(ranges() == "Hora: HorovodAllreduce 40\nHora: HorovodAllreduce 400\n", ranges());
  });
}

TEST_CASE("nvtx: an operation on which the ranks disagree ends its range") {
  expect_all_well(world(false), [](Communicator& communicator) {
    Tensor tensor(HORA_FLOAT32, {rank_of(communicator) + 1});
    Call call(communicator, reduce_request("odd", tensor, tensor));
    check(call.wait() == HORA_MISMATCH, "the shapes differ");
    sum(communicator, "even", 1);
    check(ranges().find("open") == std::string::npos, ranges());
  });
}

TEST_CASE("nvtx: there are none if the user wants none") {
  expect_all_well(world(true), [](Communicator& communicator) {
    sum(communicator, "first", 10);
    check(ranges().empty(), ranges());
  });
}
