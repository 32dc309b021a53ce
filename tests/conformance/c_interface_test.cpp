// SPDX-License-Identifier: Apache-2.0
// hora.h as programs misuse it. A world of one, each in a process of its own.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "hora/hora.h"
#include "tests/support/catch.h"

namespace {

constexpr unsigned kTimeout = 60;  // seconds; a hang

// The code that a child which does this passes to exit(). One that hangs is ended by a signal.
int exit_code_of(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(kTimeout);
    exit(body());  // with all that a program does at its end
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

hora_request sum_of(std::vector<float>& data, const std::int64_t& count, const char* name) {
  hora_request request{};
  request.struct_size = sizeof request;
  request.operation = HORA_ALLREDUCE;
  request.name = name;
  request.input.data = data.data();
  request.input.shape = &count;
  request.input.ndim = 1;
  request.input.dtype = HORA_FLOAT32;
  request.input.device = HORA_CPU_DEVICE;
  request.output = request.input;
  request.reduce_op = HORA_SUM;
  request.prescale = request.postscale = 1;
  return request;
}

hora_handle begin_sum(std::vector<float>& data) {
  const auto count = static_cast<std::int64_t>(data.size());
  const hora_request request = sum_of(data, count, "sum");
  hora_handle handle = 0;
  return hora_submit(&request, 1, &handle) == HORA_OK ? handle : 0;
}

bool says(const std::string& part) {
  return std::string(hora_last_error()).find(part) != std::string::npos;
}

// The exchange of a world of two, the other of which does not come.
int exchange_for_ever(void* context, const void* /*data*/, size_t /*bytes*/, void* /*received*/,
                      int64_t /*timeout_ms*/) {
  *static_cast<std::atomic<bool>*>(context) = true;
  for (;;) std::this_thread::yield();
}

// Begins to join on another thread, which never ends; returns when it waits for the other process.
void begin_to_join() {
  static std::atomic<bool> waits{false};
  std::thread([] {
    hora_options options{};
    options.struct_size = sizeof options;
    options.size = 2;
    options.allgather = exchange_for_ever;
    options.context = &waits;
    hora_init(&options);
  }).detach();
  while (!waits) std::this_thread::yield();
}

}  // namespace

TEST_CASE(
    "hora.h: a forked child knows its rank, takes part in nothing, and ends without a word to the "
    "others") {
  const int code = exit_code_of([] {
    std::vector<float> data(10, 1);
    if (hora_init(nullptr) != HORA_OK) return 1;
    const int of_child = exit_code_of([&] {
      alarm(5);  // the runtime itself would wait for longer
      if (hora_is_initialized() != 1 || hora_rank() != 0 || hora_size() != 1) return 2;
      if (begin_sum(data) != 0 || !says("forked")) return 3;
      if (hora_init(nullptr) != HORA_NOT_INITIALIZED || !says("forked")) return 4;
      return hora_shutdown() == HORA_OK ? 0 : 5;
    });
    if (of_child != 0) return 10 + of_child;
    return hora_wait(begin_sum(data), -1) == HORA_OK ? 0 : 6;
  });
  CHECK(code == 0);
}

TEST_CASE("hora.h: who forks before it joins a job leaves its child free to do so") {
  CHECK(exit_code_of([] {
          const auto joins = [] { return hora_init(nullptr) == HORA_OK ? 0 : 1; };
          if (const int of_child = exit_code_of(joins); of_child != 0) return of_child;
          return joins();
        }) == 0);
}

TEST_CASE("hora.h: a program may exit or fork while a thread of it waits for others to join") {
  CHECK(exit_code_of([] {
          begin_to_join();
          return 7;  // to exit(), as all bodies
        }) == 7);
#ifndef __SANITIZE_THREAD__  // it lets no child of several threads start one
  CHECK(exit_code_of([] {
          begin_to_join();
          return exit_code_of([] { return hora_init(nullptr) == HORA_OK ? 8 : 1; });
        }) == 8);
#endif
}

TEST_CASE("hora.h: null pointers and devices that are not there are mistakes, and end nothing") {
  CHECK(exit_code_of([] {
          hora_options options{};
          options.struct_size = sizeof options;
          options.process_set_count = 1;
          if (hora_init(&options) != HORA_INVALID_ARGUMENT || !says("process sets need")) return 1;
          options.process_set_count = -1;
          if (hora_init(&options) != HORA_INVALID_ARGUMENT || !says("process sets need")) return 2;
          if (hora_init(nullptr) != HORA_OK) return 3;
          std::vector<float> data(10, 1);
          const std::int64_t count = 10;
          hora_request request = sum_of(data, count, "sum");
          request.operation = HORA_BROADCAST;
          request.input.data = nullptr;
          if (hora_run(&request, -1, nullptr) != HORA_INVALID_ARGUMENT || !says("NULL")) return 4;
          request = sum_of(data, count, "sum");
          request.input.device = request.output.device = 99;
          if (hora_run(&request, -1, nullptr) != HORA_INVALID_ARGUMENT || !says("device 99"))
            return 5;
          request = sum_of(data, count, "everyones");
          request.operation = HORA_ALLTOALL;
          request.output = {};
          hora_handle handle = 0;
          if (hora_run(&request, -1, &handle) != HORA_OK) return 6;
          if (hora_result(handle, nullptr) != HORA_INVALID_ARGUMENT || !says("NULL")) return 7;
          if (hora_received_splits(handle, nullptr, nullptr) != HORA_INVALID_ARGUMENT) return 8;
          hora_release(handle);
          return hora_wait(begin_sum(data), -1) == HORA_OK ? 0 : 9;
        }) == 0);
}

TEST_CASE("hora.h: a timeout beyond the range of the clock waits for ever") {
  CHECK(exit_code_of([] {
          std::vector<float> data(std::size_t{16} << 20, 1);  // it is not done at once
          if (hora_init(nullptr) != HORA_OK) return 1;
          return hora_wait(begin_sum(data), INT64_MAX) == HORA_OK ? 0 : 2;
        }) == 0);
}

TEST_CASE("hora.h: a handle of a world that was left is none of the next one") {
  CHECK(exit_code_of([] {
          std::vector<float> data(10, 1);
          if (hora_init(nullptr) != HORA_OK) return 1;
          const hora_handle old = begin_sum(data);
          if (hora_wait(old, -1) != HORA_OK || hora_reset() != HORA_OK) return 2;
          const hora_handle fresh = begin_sum(data);
          if (hora_wait(old, -1) != HORA_INVALID_ARGUMENT || !says("unknown handle")) return 3;
          hora_release(old);
          return hora_wait(fresh, -1) == HORA_OK ? 0 : 4;
        }) == 0);
}

TEST_CASE("hora.h: threads that call while the world ends are refused, and come to no harm") {
  CHECK(exit_code_of([] {
          std::atomic<bool> over{false};
          std::atomic<int> wrong{0};
          std::vector<std::thread> threads;
          for (int thread = 0; thread < 3; ++thread) {
            threads.emplace_back([&, thread] {
              std::vector<float> data(10, 1);
              const auto count = static_cast<std::int64_t>(data.size());
              const std::string name = "sum." + std::to_string(thread);
              const hora_request request = sum_of(data, count, name.c_str());
              while (!over) {
                hora_handle handle = 0;
                if (hora_submit(&request, 1, &handle) != HORA_OK) continue;
                const hora_status status = hora_wait(handle, -1);
                // The handle of a world that has ended is unknown.
                if (status != HORA_OK && status != HORA_ABORTED && status != HORA_NOT_INITIALIZED &&
                    status != HORA_INVALID_ARGUMENT) {
                  ++wrong;
                }
                hora_release(handle);
              }
            });
          }
          for (int round = 0; round < 20; ++round) {
            if (hora_init(nullptr) != HORA_OK || hora_shutdown() != HORA_OK) ++wrong;
          }
          over = true;
          for (std::thread& each : threads) each.join();
          return wrong.load();
        }) == 0);
}

TEST_CASE("hora.h: a blocking call needs no handle, but where there is a result") {
  CHECK(exit_code_of([] {
          std::vector<float> data(10, 1);
          const auto count = static_cast<std::int64_t>(data.size());
          hora_request request = sum_of(data, count, "blocking");
          if (hora_run(&request, -1, nullptr) != HORA_NOT_INITIALIZED) return 1;
          if (hora_init(nullptr) != HORA_OK) return 2;
          hora_handle handle = 7;
          for (int round = 0; round < 3; ++round) {
            if (hora_run(&request, -1, nullptr) != HORA_OK) return 3;
            if (hora_run(&request, 1000, &handle) != HORA_OK || handle != 0) return 4;
          }
          if (hora_run(&request, 1000, nullptr) != HORA_INVALID_ARGUMENT || !says("handle"))
            return 5;
          if (hora_run(nullptr, -1, nullptr) != HORA_INVALID_ARGUMENT) return 6;
          request.input.data = nullptr;
          if (hora_run(&request, -1, nullptr) != HORA_INVALID_ARGUMENT || !says("input.data"))
            return 7;
          hora_request gather = sum_of(data, count, "gather");
          gather.operation = HORA_ALLGATHER;
          gather.output.data = nullptr;
          if (hora_run(&gather, -1, nullptr) != HORA_INVALID_ARGUMENT) return 8;
          hora_tensor result{};
          if (hora_run(&gather, -1, &handle) != HORA_OK || hora_result(handle, &result) != HORA_OK)
            return 9;
          if (result.shape[0] != count) return 10;
          hora_release(handle);
          return 0;
        }) == 0);
}

TEST_CASE("hora.h: a plan is started again and again, and ends with its world") {
  CHECK(exit_code_of([] {
          std::vector<float> data(10, 1);
          const auto count = static_cast<std::int64_t>(data.size());
          const hora_request request = sum_of(data, count, "prepared");
          hora_plan* plan = nullptr;
          if (hora_prepare(&request, 1, &plan) != HORA_NOT_INITIALIZED) return 1;
          if (hora_init(nullptr) != HORA_OK) return 2;
          if (hora_prepare(&request, 0, &plan) != HORA_INVALID_ARGUMENT) return 3;
          if (hora_prepare(&request, 1, nullptr) != HORA_INVALID_ARGUMENT) return 4;
          if (hora_prepare(&request, 1, &plan) != HORA_OK) return 5;
          if (hora_plan_wait(plan, -1) != HORA_INVALID_ARGUMENT || !says("not been started"))
            return 6;
          for (int round = 0; round < 3; ++round) {
            if (hora_start(plan) != HORA_OK || hora_plan_wait(plan, -1) != HORA_OK) return 7;
            if (hora_plan_poll(plan) != HORA_OK) return 8;
            if (hora_plan_run(plan, -1) != HORA_OK || hora_plan_wait(plan, -1) != HORA_OK)
              return 15;
          }
          if (exit_code_of([&] {
                alarm(5);
                if (hora_start(plan) != HORA_NOT_INITIALIZED || !says("forked")) return 1;
                hora_plan_free(plan);
                return 0;
              }) != 0) {
            return 9;
          }
          if (hora_reset() != HORA_OK) return 10;
          if (hora_start(plan) != HORA_ABORTED || !says("prepare it again")) return 11;
          hora_plan* fresh = nullptr;
          if (hora_prepare(&request, 1, &fresh) != HORA_OK || hora_start(fresh) != HORA_OK)
            return 12;
          hora_plan_free(fresh);  // perhaps in flight
          hora_plan_free(plan);
          hora_plan_free(nullptr);
          if (hora_start(nullptr) != HORA_INVALID_ARGUMENT) return 13;
          return hora_wait(begin_sum(data), -1) == HORA_OK ? 0 : 14;
        }) == 0);
}
