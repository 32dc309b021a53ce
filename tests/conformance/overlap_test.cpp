// SPDX-License-Identifier: Apache-2.0
// Operations of a GPU that are under way at once, and end in any order. What makes it certain is
// work on the stream that makes a tensor: an operation on it cannot end before that is let go.
//
// Runs on the GPU that tests/support/gpu_double makes of host memory.
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "calls.h"
#include "gpu_double.h"
#include "processes.h"
#include "tensors.h"
#include "tests/support/catch.h"

using namespace hora;
using namespace hora::test;
using collectives::Communicator;

namespace {

// A stream that goes on when it is let go, or this object ends.
class Gate {
 public:
  Gate() {
    static const auto create =
        find<int (*)(void**, unsigned, int)>("libcuda.so.1", "cuStreamCreateWithPriority");
    static const auto launch =
        find<int (*)(void*, void (*)(void*), void*)>("libcuda.so.1", "cuLaunchHostFunc");
    check(create(&stream_, 0, 0) == 0, "no stream");
    check(launch(
              stream_, [](void* self) { static_cast<Gate*>(self)->wait(); }, this) == 0,
          "no work on the stream");
  }
  ~Gate() {
    open();
    static const auto synchronize = find<int (*)(void*)>("libcuda.so.1", "cuStreamSynchronize");
    synchronize(stream_);
  }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  void* stream() const { return stream_; }
  void open() {
    const std::lock_guard<std::mutex> lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  void wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return open_; });
  }

  Tensor on_device_{HORA_FLOAT32, {1}};  // with it this thread uses the device
  void* stream_ = nullptr;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

struct Reduction {
  Reduction(Communicator& communicator, const char* name, std::int64_t count, int set,
            const Gate* gate)
      : tensor(HORA_FLOAT32, {count}) {
    fill(tensor, rank_of(communicator));
    hora_request request = reduce_request(name, tensor, tensor);
    request.process_set = set;
    if (gate != nullptr) request.stream = gate->stream();
    call.emplace(communicator, request);
  }
  bool done() const { return call->operation()->done(); }
  void finish(const std::vector<int>& ranks) {
    check(call->wait() == HORA_OK, call->error());
    for (std::int64_t i = 0; i < tensor.count(); ++i) {
      const double expected = reduced(HORA_FLOAT32, HORA_SUM, ranks, i);
      check(tensor.get(i) == expected, difference("sum", i, tensor.get(i), expected));
    }
  }

  Tensor tensor;
  std::optional<Call> call;
};

WorldOptions world_with(const char* streams) {
  setenv("HOROVOD_NUM_NCCL_STREAMS", streams, 1);
  WorldOptions options;
  options.size = 3;
  options.backends = "nccl,shm";
  options.process_sets = {{0, 1}};
  return options;
}

const std::vector<int> kWorld{0, 1, 2};
const std::vector<int> kPair{0, 1};

}  // namespace

TEST_CASE("overlap: an operation ends although one that began before it cannot") {
  expect_all_well(world_with("2"), [](Communicator& communicator) {
    for (int round = 0; round < 3; ++round) {
      Gate gate;
      const int before = started();
      Reduction first(communicator, "first", 1000, 0, &gate);
      wait_until_started(before + 1);
      Reduction second(communicator, "second", 7, 0, nullptr);
      second.finish(kWorld);
      check(!first.done(), "the first has ended before its tensor was there");
      gate.open();
      first.finish(kWorld);
    }
  });
}

TEST_CASE("overlap: so do operations of different process sets") {
  expect_all_well(world_with("2"), [](Communicator& communicator) {
    const bool in_pair = rank_of(communicator) < 2;
    for (const bool pair_first : {true, false, true}) {
      Gate gate;
      const int before = started();
      std::optional<Reduction> of_pair;
      std::optional<Reduction> of_world;
      const auto begin_pair = [&](const Gate* its) {
        if (in_pair) of_pair.emplace(communicator, "pair", 100, 1, its);
      };
      if (pair_first) {
        begin_pair(&gate);
        if (in_pair) wait_until_started(before + 1);
        of_world.emplace(communicator, "world", 100, 0, nullptr);
        of_world->finish(kWorld);
        if (in_pair) check(!of_pair->done(), "the pair's has ended before its tensor was there");
      } else {
        of_world.emplace(communicator, "world", 100, 0, &gate);
        wait_until_started(before + 1);
        begin_pair(nullptr);
        if (in_pair) of_pair->finish(kPair);
        check(!of_world->done(), "the world's has ended before its tensor was there");
      }
      gate.open();
      of_world->finish(kWorld);
      if (in_pair) of_pair->finish(kPair);
    }
  });
}

TEST_CASE("overlap: no more than there are streams are under way") {
  for (const int streams : {1, 2, 3}) {
    expect_all_well(world_with(std::to_string(streams).c_str()), [&](Communicator& communicator) {
      Gate gate;
      const int before = started();
      std::vector<std::unique_ptr<Reduction>> all;
      for (int i = 0; i <= streams; ++i) {
        const std::string name = "held " + std::to_string(i);
        all.push_back(std::make_unique<Reduction>(communicator, name.c_str(), 10, 0, &gate));
        if (i < streams) wait_until_started(before + i + 1);
      }
      // For a moment in which the runtime could do what it must not do.
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      check(started() == before + streams, "one too many has begun");
      gate.open();
      for (auto& each : all) each->finish(kWorld);
    });
  }
}

TEST_CASE("overlap: a rank that dies ends all that are under way, by name") {
  const auto results = run_processes(world_with("2"), [](Communicator& communicator) {
    const bool dies = rank_of(communicator) == 2;
    std::optional<Gate> gate;
    Reduction warm_up(communicator, "warm-up", 1, 0, nullptr);
    warm_up.finish(kWorld);
    SharedCounter ready(communicator);
    if (dies) gate.emplace();
    const int before = started();
    Reduction first(communicator, "first", 1000, 0, dies ? &*gate : nullptr);
    wait_until_started(before + 1);
    Reduction second(communicator, "second", 1000, 0, dies ? &*gate : nullptr);
    wait_until_started(before + 2);
    ++ready.value();
    while (dies && ready.value() < size_of(communicator)) sched_yield();
    if (dies) kill(getpid(), SIGKILL);
    for (Reduction* each : {&first, &second}) {
      const hora_status status = each->call->wait();
      check(status == HORA_ABORTED, std::string("ended by ") + hora_status_name(status));
      check(each->call->error().find("rank 2 (") != std::string::npos,
            "the dead rank is not named: " + each->call->error());
    }
  });
  CHECK(results[2].signal == SIGKILL);
  for (const int rank : {0, 1}) {
    INFO("rank " << rank << ": " << results[static_cast<std::size_t>(rank)].text);
    CHECK(results[static_cast<std::size_t>(rank)].exited);
    CHECK(results[static_cast<std::size_t>(rank)].code == 0);
    CHECK(results[static_cast<std::size_t>(rank)].seconds < 30);  // a hang
  }
}

// The process lives, the GPU's work does not go on, and it is noticed only if NCCL is asked.
TEST_CASE("overlap: an error that NCCL reports when it is polled ends what is under way") {
  const auto results = run_processes(world_with("2"), [](Communicator& communicator) {
    const bool breaks = rank_of(communicator) == 1;
    const bool holds = rank_of(communicator) == 2;
    Reduction warm_up(communicator, "warm-up", 1, 0, nullptr);
    warm_up.finish(kWorld);
    SharedCounter reached(communicator);
    const auto deadline = std::chrono::steady_clock::now() + kTimeout;
    const auto wait_for = [&](int count) {
      while (reached.value() < count && std::chrono::steady_clock::now() < deadline) sched_yield();
    };
    std::optional<Gate> gate;
    if (holds) gate.emplace();
    const int before = started();
    Reduction held(communicator, "held", 1000, 0, holds ? &*gate : nullptr);
    wait_until_started(before + 1);
    ++reached.value();
    // A rank that has not begun when another one fails never begins.
    const int all = size_of(communicator);
    if (breaks) wait_for(all);
    if (breaks) find<void (*)()>("libnccl.so.2", "hora_double_break")();
    if (holds) wait_for(all + 1);
    gate.reset();
    const hora_status status = held.call->wait();
    if (breaks) ++reached.value();
    check(status == HORA_ABORTED, std::string("ended by ") + hora_status_name(status));
    for (const char* const part : {"rank 1 (", "NCCL: an error of the double"}) {
      check(held.call->error().find(part) != std::string::npos, held.call->error());
    }
  });
  for (std::size_t rank = 0; rank < results.size(); ++rank) {
    INFO("rank " << rank << ": " << results[rank].text);
    CHECK(results[rank].exited);
    CHECK(results[rank].code == 0);
    CHECK(results[rank].seconds < 30);  // a hang
  }
}
