// SPDX-License-Identifier: Apache-2.0
// NCCL of other versions: old ones, which lack calls, such that differ between ranks, and none at
// all; and ranks that share a GPU. Runs on the GPU that tests/support/gpu_double makes of host
// memory.
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <thread>

#include "calls.h"
#include "collectives/backends/registry.h"
#include "collectives/runtime/request_check.h"
#include "gpu_double.h"
#include "tensors.h"

using namespace hora;
using namespace hora::test;
using collectives::Communicator;

namespace {

// Of the process of each rank, before it meets the others.
WorldOptions world(const std::function<void(int rank)>& prepare) {
  WorldOptions options;
  options.size = 3;
  options.backends = "nccl,shm";
  options.adjust = [prepare](collectives::Settings& settings) { prepare(settings.rank); };
  return options;
}

void use_old_nccl(int) { setenv("HORA_NCCL_LIBRARY", HORA_OLD_NCCL, 1); }

void expect_text(const std::string& text, const std::string& part) {
  check(text.find(part) != std::string::npos, "'" + part + "' is not in: " + text);
}

void expect_right_sum(Communicator& communicator, hora_dtype dtype, double prescale = 1) {
  Tensor tensor(dtype, {100});
  for (std::int64_t i = 0; i < 100; ++i) tensor.set(i, 2 * (rank_of(communicator) + 1));
  hora_request request = reduce_request("sum", tensor, tensor);
  request.prescale = prescale;
  Call(communicator, request).finish();
  for (std::int64_t i = 0; i < 100; ++i) {
    const double right = 12 * prescale;
    check(tensor.get(i) == right, difference("sum", i, tensor.get(i), right));
  }
}

std::vector<std::string> notes_of_nccl(const Communicator& communicator) {
  std::vector<std::string> notes;
  for (const auto& [id, note] : communicator.engine().backends().notes()) {
    if (id == "nccl") notes.push_back(note);
  }
  return notes;
}

}  // namespace

TEST_CASE("versions: NCCL 2.8 does what it can, and its version is written in the usual form") {
  expect_all_well(world(use_old_nccl), [](Communicator& communicator) {
    expect_right_sum(communicator, HORA_FLOAT32);
    expect_text(collectives::describe(&communicator), "\"version\":\"2.8.4\"");
    check(notes_of_nccl(communicator).empty(), "NCCL reported something");
  });
}

TEST_CASE("versions: without kernels and the operators of NCCL 2.11, host memory scales") {
  expect_all_well(world([](int rank) {
                    use_old_nccl(rank);
                    setenv("HORA_DOUBLE_REFUSES", "code,ptx", 1);
                  }),
                  [](Communicator& communicator) {
                    expect_right_sum(communicator, HORA_FLOAT32, 0.5);
                    const auto host_functions =
                        find<int (*)()>("libcuda.so.1", "hora_double_host_functions");
                    check(host_functions() == 1, "it was scaled elsewhere");
                  });
}

TEST_CASE("versions: bfloat16, which NCCL has since 2.10, goes through host memory before") {
  expect_all_well(world(use_old_nccl), [](Communicator& communicator) {
    for (int round = 0; round < 2; ++round) expect_right_sum(communicator, HORA_BFLOAT16);
    const std::vector<std::string> notes = notes_of_nccl(communicator);
    check(notes.size() == 1, std::to_string(notes.size()) + " notes");
    expect_text(notes[0], "allreduce of bfloat16 tensors in GPU memory goes through host memory");
  });
}

TEST_CASE("versions: before 2.8 NCCL is not used, and host memory serves instead") {
  expect_all_well(world([](int) { setenv("HORA_DOUBLE_NCCL", "2708", 1); }),
                  [](Communicator& communicator) {
                    expect_right_sum(communicator, HORA_FLOAT32);
                    expect_text(collectives::describe(&communicator),
                                "NCCL 2.7.8 is too old; 2.8.0 or newer is needed");
                    const std::vector<std::string> notes = notes_of_nccl(communicator);
                    check(notes.size() == 1, std::to_string(notes.size()) + " notes");
                    expect_text(notes[0], "every operation on tensors in GPU memory");
                  });
}

// What its file says, as for any other library of the kind.
std::string nccl_for_cuda_13() {
  std::ifstream file(HORA_NEW_NCCL, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const std::size_t at = bytes.find("+cuda11.0");
  check(at != std::string::npos, "the double of NCCL has no banner");
  bytes.replace(at, 9, "+cuda13.0");
  std::string path = std::string(HORA_NEW_NCCL) + ".cuda13." + std::to_string(getpid());
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

TEST_CASE("versions: an NCCL for a newer CUDA than the driver's is not used") {
  const std::string path = nccl_for_cuda_13();
  for (const bool fits : {true, false}) {
    expect_all_well(world([&](int) {
                      setenv("HORA_NCCL_LIBRARY", path.c_str(), 1);
                      setenv("HORA_DOUBLE_DRIVER", fits ? "13020" : "12020", 1);
                    }),
                    [&](Communicator& communicator) {
                      expect_right_sum(communicator, HORA_FLOAT32);
                      const std::string text = collectives::describe(&communicator);
                      const bool reported =
                          text.find("is for CUDA 13.0, and the driver for 12.2") !=
                          std::string::npos;
                      check(reported != fits, text);
                    });
  }
  unlink(path.c_str());
}

TEST_CASE("versions: ranks with different ones do not use it, and learn which they have") {
  expect_all_well(world([](int rank) {
                    if (rank == 2) setenv("HORA_DOUBLE_NCCL", "21805", 1);
                    if (rank != 2) setenv("HORA_DOUBLE_NCCL", "22104", 1);
                  }),
                  [](Communicator& communicator) {
                    expect_right_sum(communicator, HORA_FLOAT32);
                    const std::string text = collectives::describe(&communicator);
                    expect_text(text, "rank 0 has NCCL 2.21.4 and rank 2 has 2.18.5");
                    expect_text(text, "HORA_NCCL=ship");
                  });
}

TEST_CASE("shared GPUs: more ranks than GPUs do without NCCL, and host memory serves instead") {
  for (const bool shared : {false, true}) {
    expect_all_well(world([shared](int rank) {
                      const int gpu = shared && rank == 2 ? 0 : rank;
                      const std::string id = "0000:0" + std::to_string(gpu) + ":00.0";
                      setenv("HORA_DOUBLE_BUS_ID", id.c_str(), 1);
                    }),
                    [shared](Communicator& communicator) {
                      expect_right_sum(communicator, HORA_FLOAT32);
                      const std::string text = collectives::describe(&communicator);
                      const bool reported =
                          text.find("ranks 0 and 2 share GPU 0000:00:00.0") != std::string::npos;
                      check(reported == shared, text);
                      const std::vector<std::string> notes = notes_of_nccl(communicator);
                      check(notes.size() == (shared ? 1u : 0u),
                            std::to_string(notes.size()) + " notes");
                      if (shared) expect_text(notes[0], "needs one for each rank");
                    });
  }
}

// Such as torch.clone(), which is queued when the tensor is submitted, and runs later.
TEST_CASE("host memory: a broadcast waits for the queued work on what it overwrites") {
  expect_all_well(
      world([](int) { setenv("HORA_DOUBLE_NCCL", "2708", 1); }), [](Communicator& communicator) {
        const auto create_stream =
            find<int (*)(void**, unsigned, int)>("libcuda.so.1", "cuStreamCreateWithPriority");
        const auto launch =
            find<int (*)(void*, void (*)(void*), void*)>("libcuda.so.1", "cuLaunchHostFunc");
        Tensor tensor(HORA_FLOAT32, {1000});  // with it this thread uses the device
        void* stream = nullptr;
        check(create_stream(&stream, 0, 0) == 0, "no stream");
        constexpr int kRoot = 2;
        for (std::int64_t i = 0; i < tensor.count(); ++i) tensor.set(i, kRoot);
        const auto fill_with_zeros = [](void* data) {
          std::this_thread::sleep_for(std::chrono::milliseconds(100));  // of work
          auto& its = *static_cast<Tensor*>(data);
          for (std::int64_t i = 0; i < its.count(); ++i) its.set(i, 0);
        };
        if (rank_of(communicator) != kRoot) launch(stream, fill_with_zeros, &tensor);
        hora_request request = bare_request(HORA_BROADCAST);
        request.name = "sent";
        request.input = tensor.view();
        request.output = tensor.view();
        request.root_rank = kRoot;
        request.stream = stream;
        Call(communicator, request).finish();
        find<int (*)(void*)>("libcuda.so.1", "cuStreamSynchronize")(stream);
        for (std::int64_t i = 0; i < tensor.count(); ++i) {
          check(tensor.get(i) == kRoot, difference("sent", i, tensor.get(i), kRoot));
        }
      });
}
