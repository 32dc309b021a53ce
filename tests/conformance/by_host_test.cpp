// SPDX-License-Identifier: Apache-2.0
// The host memory through which tensors of a GPU go where no backend takes them there. Runs on the
// GPU that tests/support/gpu_double makes of host memory.
#include <cstdint>
#include <string>

#include "calls.h"
#include "gpu_double.h"
#include "tensors.h"

using namespace hora;
using namespace hora::test;
using collectives::Communicator;

namespace {

WorldOptions world() {
  WorldOptions options;
  options.size = 2;
  options.backends = "shm";
  return options;
}

// Of this process: how often pages were locked, and how many bytes are locked now.
int locks() { return find<int (*)()>("libcuda.so.1", "hora_double_locks")(); }
std::size_t locked() { return find<std::size_t (*)()>("libcuda.so.1", "hora_double_locked")(); }
void refuse_locks(bool refuse) {
  find<void (*)(bool)>("libcuda.so.1", "hora_double_refuse_locks")(refuse);
}

void sum(Communicator& communicator, std::int64_t count) {
  Tensor tensor(HORA_UINT8, {count});
  for (std::int64_t i = 0; i < count; ++i) {
    tensor.set(i, static_cast<double>(i % 50 + rank_of(communicator)));
  }
  const std::string name = std::to_string(count);
  Call(communicator, reduce_request(name.c_str(), tensor, tensor)).finish();
  for (std::int64_t i = 0; i < count; ++i) {
    check(tensor.get(i) == static_cast<double>(2 * (i % 50) + 1), name + " bytes: a wrong sum");
  }
}

}  // namespace

TEST_CASE("by host: memory stays locked from operation to operation, and grows") {
  expect_all_well(world(), [](Communicator& communicator) {
    sum(communicator, 1000);
    const int first = locks();
    for (const std::int64_t count : {1, 2, 3, 999, 1000, 30'000, 60'000}) sum(communicator, count);
    check(locks() == first, "it was locked again");
    sum(communicator, 1'000'000);
    check(locks() == first + 1, "a larger tensor took more than one block");
    check(locked() < 2'000'000, "the smaller block is kept next to the larger one");
    sum(communicator, 1000);
    check(locks() == first + 1, "a smaller tensor does not use the larger block");
  });
}

TEST_CASE("by host: a rank that cannot lock memory says so") {
  const auto results = run_processes(world(), [](Communicator& communicator) {
    sum(communicator, 10);
    if (rank_of(communicator) == 1) refuse_locks(true);
    Tensor tensor(HORA_UINT8, {1'000'000});
    Call call(communicator, reduce_request("large", tensor, tensor));
    check(call.wait() == HORA_ABORTED, "the operation did not fail");
    check(call.error().find("rank 1") != std::string::npos &&
              call.error().find("cuMemAllocHost") != std::string::npos,
          "the cause is not reported: " + call.error());
  });
  for (const auto& result : results) {
    INFO(result.text);
    CHECK(result.code == 0);
  }
}
