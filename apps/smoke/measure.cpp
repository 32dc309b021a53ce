// SPDX-License-Identifier: Apache-2.0
// Rough figures for a first impression; hora-perf measures properly.
#include "apps/smoke/measure.h"

#include <algorithm>
#include <chrono>
#include <functional>

#include "apps/smoke/session.h"

namespace hora::smoke {

namespace {

double seconds_of(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Returns the largest of the ranks' values.
double slowest(double mine) {
  Array value(HORA_FLOAT64, {1});
  value.set(0, mine);
  allreduce("smoke.slowest", value, value, HORA_MAX);
  return value.get(0);
}

void wait_for(const hora_request& request) {
  hora_handle handle = 0;
  if (hora_submit(&request, 1, &handle) == HORA_OK) hora_wait(handle, 60'000);
  hora_release(handle);
}

hora_request prepared(hora_operation operation, Array& input, Array& output) {
  hora_request request = request_for(operation, "smoke.timed");
  if (operation == HORA_BARRIER) {
    request.name = nullptr;
    return request;
  }
  request.input = input.view();
  if (operation == HORA_ALLREDUCE || operation == HORA_BROADCAST) request.output = output.view();
  return request;
}

Timing measure(hora_operation operation, const char* name, std::int64_t bytes, double budget) {
  const int size = hora_size();
  std::int64_t count = std::max<std::int64_t>(bytes / 4, 1);
  // The size is that of the whole result or input, as in hora-perf.
  if (operation == HORA_ALLGATHER) count = std::max<std::int64_t>(count / size, 1);
  if (operation == HORA_ALLTOALL) count = std::max<std::int64_t>(count / size, 1) * size;
  Array input(HORA_FLOAT32, {count});
  Array output(HORA_FLOAT32, {count});
  const hora_request request = prepared(operation, input, output);
  wait_for(request);
  // The slowest rank's time, so that all ranks make the same number of calls.
  const double once = slowest(seconds_of([&] { wait_for(request); }));
  const int repetitions = std::clamp(static_cast<int>(budget / std::max(once, 1e-6)), 3, 300);
  std::vector<double> times;
  for (int i = 0; i < repetitions; ++i) {
    times.push_back(seconds_of([&] { wait_for(request); }));
  }
  // The median ignores single disturbances.
  std::nth_element(times.begin(), times.begin() + repetitions / 2, times.end());
  return {name, bytes, slowest(times[static_cast<std::size_t>(repetitions / 2)]) * 1e6};
}

}  // namespace

std::vector<Timing> measure_all(double budget_seconds) {
  struct Operation {
    hora_operation value;
    const char* name;
  };
  constexpr Operation kOperations[] = {
      {HORA_ALLREDUCE, "allreduce"},         {HORA_ALLGATHER, "allgather"},
      {HORA_BROADCAST, "broadcast"},         {HORA_ALLTOALL, "alltoall"},
      {HORA_REDUCESCATTER, "reducescatter"},
  };
  constexpr std::int64_t kBytes[] = {4, 65536, 1 << 20, 16 << 20};
  // Five operations with four sizes each, and a barrier.
  const double each = budget_seconds / 21;
  std::vector<Timing> timings;
  for (const Operation& operation : kOperations) {
    for (std::int64_t bytes : kBytes) {
      timings.push_back(measure(operation.value, operation.name, bytes, each));
    }
  }
  timings.push_back(measure(HORA_BARRIER, "barrier", 0, each));
  return timings;
}

}  // namespace hora::smoke
