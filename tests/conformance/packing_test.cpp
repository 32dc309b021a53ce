// SPDX-License-Identifier: Apache-2.0
// How tensors of a GPU are packed and scaled: by the kernels, as machine code or as PTX, or without
// them. Runs on the GPU that tests/support/gpu_double makes of host memory.
#include <sched.h>

#include <cstdlib>
#include <cstring>

#include "calls.h"
#include "collectives/kernels/kernels.h"
#include "gpu_double.h"
#include "tensors.h"

using namespace hora;
using namespace hora::test;
using collectives::Communicator;

namespace {

using Bytes = std::vector<unsigned char>;

WorldOptions world() {
  WorldOptions options;
  options.size = 3;
  options.backends = "nccl,shm";
  options.process_sets = {{0, 1}};
  return options;
}

// The driver of this process, from its first use of the GPU on.
struct Driver {
  const char* version;
  const char* refuses;
};

void become(const Driver& driver) {
  setenv("HORA_DOUBLE_DRIVER", driver.version, 1);
  setenv("HORA_DOUBLE_REFUSES", driver.refuses, 1);
}

int launches() { return find<int (*)()>("libcuda.so.1", "hora_double_launches")(); }
int host_functions() { return find<int (*)()>("libcuda.so.1", "hora_double_host_functions")(); }

std::vector<std::string> notes_of_nccl(const Communicator& communicator) {
  std::vector<std::string> notes;
  for (const auto& [id, note] : communicator.engine().backends().notes()) {
    if (id == "nccl") notes.push_back(note);
  }
  return notes;
}

struct Scaling {
  hora_reduce_op op;
  double prescale;
  double postscale;
};

// Values whose sums and products are rounded.
double awkward(int rank, std::int64_t index) {
  return static_cast<double>((index * 37 + rank * 11) % 101 - 50) / 7.0;
}

Bytes bytes_of(Tensor& tensor) {
  const auto* const start = static_cast<const unsigned char*>(tensor.data());
  const auto bytes =
      static_cast<std::size_t>(tensor.count()) * collectives::dtype_bytes(tensor.dtype());
  return Bytes(start, start + bytes);
}

// As the definition has it: each input scaled, added in the order of the ranks, scaled again.
Bytes expected(hora_dtype dtype, std::int64_t count, int ranks, const Scaling& scaling) {
  std::vector<Bytes> inputs;
  for (int rank = 0; rank < ranks; ++rank) {
    Tensor input(dtype, {count});
    for (std::int64_t i = 0; i < count; ++i) input.set(i, awkward(rank, i));
    collectives::apply_scale(input.data(), count, dtype, scaling.prescale, 1);
    inputs.push_back(bytes_of(input));
  }
  collectives::reduce_ranks(
      inputs[0].data(), [&](int rank) { return inputs[static_cast<std::size_t>(rank)].data(); },
      ranks, count, dtype, scaling.op, 1.0, 1);
  collectives::apply_scale(inputs[0].data(), count, dtype, scaling.postscale,
                           scaling.op == HORA_AVERAGE ? ranks : 1);
  return inputs[0];
}

// Several at once: most of them share a step, and so are packed.
void expect_bits(Communicator& communicator, const Scaling& scaling) {
  const std::vector<hora_dtype> dtypes = {HORA_FLOAT32, HORA_FLOAT64, HORA_FLOAT16, HORA_BFLOAT16,
                                          HORA_INT32,   HORA_INT8,    HORA_INT64};
  const std::vector<std::int64_t> counts = {1, 7, 100, 0};
  std::vector<std::unique_ptr<Tensor>> tensors;
  std::vector<std::unique_ptr<Call>> calls;
  for (const hora_dtype dtype : dtypes) {
    for (const std::int64_t count : counts) {
      tensors.push_back(std::make_unique<Tensor>(dtype, std::vector<std::int64_t>{count}));
      Tensor& tensor = *tensors.back();
      for (std::int64_t i = 0; i < count; ++i) tensor.set(i, awkward(rank_of(communicator), i));
      const std::string name =
          std::string(collectives::dtype_name(dtype)) + " " + std::to_string(count);
      hora_request request = reduce_request(name.c_str(), tensor, tensor, scaling.op);
      request.prescale = scaling.prescale;
      request.postscale = scaling.postscale;
      calls.push_back(std::make_unique<Call>(communicator, request));
    }
  }
  for (const auto& call : calls) call->finish();
  for (const auto& each : tensors) {
    Tensor& tensor = *each;
    check(bytes_of(tensor) ==
              expected(tensor.dtype(), tensor.count(), size_of(communicator), scaling),
          std::string(collectives::dtype_name(tensor.dtype())) + ", " +
              std::to_string(tensor.count()) + " elements, scaled by " +
              std::to_string(scaling.prescale) + " and " + std::to_string(scaling.postscale) +
              ": other bits");
  }
}

const std::vector<Scaling> kScalings = {{HORA_SUM, 1, 1},       {HORA_AVERAGE, 1, 1},
                                        {HORA_SUM, 0.25, 2},    {HORA_SUM, 1.0 / 3, 1},
                                        {HORA_AVERAGE, 0.1, 3}, {HORA_SUM, 1, 1e-3}};

void sum_once(Communicator& communicator, int set, double prescale) {
  Tensor tensor(HORA_FLOAT32, {10});
  for (std::int64_t i = 0; i < 10; ++i) tensor.set(i, 1);
  hora_request request = reduce_request("once", tensor, tensor);
  request.process_set = set;
  request.prescale = prescale;
  Call(communicator, request).finish();
}

}  // namespace

TEST_CASE("packing: a driver gets the kernels in the form that it can read") {
  for (const Driver& driver : std::vector<Driver>{{"13000", ""},      // machine code
                                                  {"11000", ""},      // too old for it: PTX
                                                  {"13000", "code"},  // of no GPU of this kind
                                                  {"12040", "code"}}) {
    INFO("driver " << driver.version << ", which refuses '" << driver.refuses << "'");
    expect_all_well(world(), [&](Communicator& communicator) {
      become(driver);
      sum_once(communicator, 0, 0.5);
      check(launches() > 0, "no kernel has run");
      check(notes_of_nccl(communicator).empty(), "NCCL reported something");
    });
  }
}

TEST_CASE("packing: without kernels tensors are still reduced, and the reasons are reported once") {
  struct Row {
    Driver driver;
    std::vector<std::string> reasons;
  };
  for (const Row& row :
       std::vector<Row>{{{"13000", "code,ptx"},
                         {"machine code: cuModuleLoadData: no kernel image is available",
                          "PTX: cuModuleLoadData: the PTX compiler is missing"}},
                        {{"10020", ""}, {"PTX: it is for CUDA 11.0, and the driver for 10.2"}}}) {
    expect_all_well(world(), [&](Communicator& communicator) {
      become(row.driver);
      sum_once(communicator, 0, 0.5);
      if (rank_of(communicator) < 2) sum_once(communicator, 1, 0.5);
      sum_once(communicator, 0, 0.5);  // no rank leaves before that
      check(launches() == 0, "a kernel has run");
      const std::vector<std::string> notes = notes_of_nccl(communicator);
      check(notes.size() == 1, std::to_string(notes.size()) + " notes");
      for (const std::string& reason : row.reasons) {
        check(notes[0].find(reason) != std::string::npos, "the reason is not there: " + notes[0]);
      }
    });
  }
}

TEST_CASE("packing: NCCL scales where it gives the same bits, and host memory elsewhere") {
  expect_all_well(world(), [](Communicator& communicator) {
    become({"13000", "code,ptx"});
    sum_once(communicator, 0, 0.5);
    check(host_functions() == 0, "an exact factor took the way through host memory");
    sum_once(communicator, 0, 1.0 / 3);
    check(host_functions() == 1, "a factor that float32 rounds was left to NCCL");
  });
}

TEST_CASE("packing: ranks with and without kernels get the same bits") {
  expect_all_well(world(), [](Communicator& communicator) {
    const Driver drivers[] = {{"13000", ""}, {"11000", ""}, {"13000", "code,ptx"}};
    become(drivers[rank_of(communicator)]);
    for (const Scaling& scaling : kScalings) expect_bits(communicator, scaling);
    check((launches() > 0) == (rank_of(communicator) < 2),
          "the drivers are not what they should be");
  });
}

TEST_CASE("packing: more than one part fits into the stage of host memory") {
  expect_all_well(world(), [](Communicator& communicator) {
    become({"13000", "code,ptx"});
    constexpr std::int64_t kCount = 2'500'003;  // 10 MB
    const Scaling scaling{HORA_SUM, 1, 1.0 / 3};
    Tensor tensor(HORA_INT32, {kCount});
    for (std::int64_t i = 0; i < kCount; ++i) tensor.set(i, awkward(rank_of(communicator), i));
    hora_request request = reduce_request("large", tensor, tensor, scaling.op);
    request.postscale = scaling.postscale;
    Call(communicator, request).finish();
    check(host_functions() == 3, std::to_string(host_functions()) + " parts");
    check(bytes_of(tensor) == expected(HORA_INT32, kCount, size_of(communicator), scaling),
          "the scaled sum is wrong");
  });
}

// If the communicators waited for it, they would time out where it takes long enough.
TEST_CASE("packing: a driver that compiles for long does not keep ranks from beginning") {
  expect_all_well(world(), [](Communicator& communicator) {
    const bool compiles = rank_of(communicator) == 0;
    const auto hold = find<void (*)(bool)>("libcuda.so.1", "hora_double_hold_loads");
    SharedCounter begun(communicator);
    hold(compiles);
    std::thread releaser([&] {
      const auto deadline = std::chrono::steady_clock::now() + kTimeout;
      while (compiles && begun.value() < size_of(communicator) - 1 &&
             std::chrono::steady_clock::now() < deadline) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      hold(false);
    });
    Tensor tensor(HORA_FLOAT32, {10});
    hora_request request = reduce_request("sum", tensor, tensor);
    request.prescale = 0.5;
    Call call(communicator, request);
    std::string failure;
    try {
      if (!compiles) wait_until_started(1);
    } catch (const std::exception& thrown) {
      failure = thrown.what();
    }
    if (!compiles) ++begun.value();
    releaser.join();
    check(failure.empty(), failure);
    call.finish();
  });
}
