// SPDX-License-Identifier: Apache-2.0
// A set of tensors reduced in place through hora.h, all in flight: the median in microseconds of
// the slowest rank.  set_hora SET STEPS [prepared | grouped]
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

}  // namespace

int main(int argc, char** argv) {
  const bool prepared = argc == 4 && std::string(argv[3]) == "prepared";
  const bool grouped = argc == 4 && std::string(argv[3]) == "grouped";
  if (argc != 3 && !prepared && !grouped) return 2;
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
