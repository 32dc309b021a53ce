// SPDX-License-Identifier: Apache-2.0
// A set of tensors reduced in place through hora.h, all in flight: the median in microseconds of
// the slowest rank.  set_hora SET STEPS [prepared | grouped] [together]
// together: all ranks begin on one core, and may leave it.
#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "hora/hora.h"
#include "set.h"
#include "timing.h"

namespace {

void check(hora_status status, const char* what) {
  if (status == HORA_OK) return;
  std::fprintf(stderr, "%s: %s: %s\n", what, hora_status_name(status), hora_last_error());
  std::exit(1);
}

hora_request reduction(const std::string& name, void* data, const std::int64_t* extent, int dtype,
                       int op) {
  hora_request request = {};
  request.struct_size = sizeof request;
  request.operation = HORA_ALLREDUCE;
  request.name = name.c_str();
  request.input = {data, extent, 1, dtype, HORA_CPU_DEVICE, 0};
  request.output = request.input;
  request.reduce_op = op;
  request.prescale = request.postscale = 1;
  return request;
}

void run(const std::vector<hora_request>& requests, bool grouped = false) {
  std::vector<hora_handle> handles(requests.size());
  // A group is submitted by one call.
  const std::size_t at_once = grouped ? requests.size() : 1;
  for (std::size_t i = 0; i < requests.size(); i += at_once) {
    check(hora_submit(&requests[i], static_cast<std::int32_t>(at_once), &handles[i]),
          "hora_submit");
  }
  for (const hora_handle handle : handles) {
    check(hora_wait(handle, 60'000), "hora_wait");
    hora_release(handle);
  }
}

// Prepared: the plan holds what the loop above does for each tensor again.
void run(hora_plan* plan) {
  check(hora_start(plan), "hora_start");
  check(hora_plan_wait(plan, 60'000), "hora_plan_wait");
}

// The ranks of a host are on its first core from then on, as after a start next to a busy program.
void meet_on_one_core() {
  cpu_set_t allowed;
  cpu_set_t first;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) std::exit(4);
  int cpu = 0;
  while (!CPU_ISSET(cpu, &allowed)) ++cpu;
  CPU_ZERO(&first);
  CPU_SET(cpu, &first);
  if (sched_setaffinity(0, sizeof first, &first) != 0) std::exit(4);
  hora_request barrier = {};
  barrier.struct_size = sizeof barrier;
  barrier.operation = HORA_BARRIER;
  check(hora_run(&barrier, -1, nullptr), "hora_run");
  if (sched_setaffinity(0, sizeof allowed, &allowed) != 0) std::exit(4);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + std::min(argc, 3), argv + argc);
  const auto has = [&](const char* word) {
    return std::find(words.begin(), words.end(), word) != words.end();
  };
  const bool prepared = has("prepared");
  const bool grouped = has("grouped");
  const bool together = has("together");
  if (argc < 3 || words.size() != static_cast<std::size_t>(prepared + grouped + together)) return 2;
  const tensor_set* set = make_set(argv[1]);
  const int steps = std::atoi(argv[2]);
  check(hora_init(nullptr), "hora_init");
  std::vector<std::int64_t> extents(set->elements, set->elements + set->count);
  std::vector<std::string> names;
  for (int i = 0; i < set->count; ++i) names.push_back("tensor." + std::to_string(i));
  std::vector<hora_request> requests;
  for (int i = 0; i < set->count; ++i) {
    requests.push_back(reduction(names[i], set->data[i], &extents[i], HORA_FLOAT32, HORA_SUM));
  }
  hora_plan* plan = nullptr;
  if (prepared) {
    check(hora_prepare(requests.data(), static_cast<int32_t>(requests.size()), &plan),
          "hora_prepare");
  }
  const auto step = [&] { plan == nullptr ? run(requests, grouped) : run(plan); };
  for (int i = 0; i < WARM_UP; ++i) step();
  if (together) meet_on_one_core();
  std::vector<double> times(static_cast<std::size_t>(steps));
  for (double& time : times) {
    const double start = now_us();
    step();
    time = now_us() - start;
  }
  double median = median_of(times.data(), steps);
  const std::int64_t one = 1;
  run({reduction("median", &median, &one, HORA_FLOAT64, HORA_MAX)});
  if (hora_rank() == 0) std::printf("%.3f\n", median);
  hora_plan_free(plan);
  check(hora_shutdown(), "hora_shutdown");
  return 0;
}
