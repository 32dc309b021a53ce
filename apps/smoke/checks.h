// SPDX-License-Identifier: Apache-2.0
// The checks of hora-smoke.
#pragma once

#include <functional>
#include <future>
#include <string>
#include <system_error>
#include <vector>

namespace hora::smoke {

// Several tasks at the same time, as far as this process may have threads for them.

template <typename Result>
std::future<Result> in_a_thread(const std::function<Result()>& task) {
  return std::async(std::launch::async, task);
}

// Each in a thread of its own, which `start` begins. Where it cannot (a limit on processes, a
// cgroup), this thread does that task before it goes on to the next.
template <typename Result>
std::vector<Result> run_at_once(
    const std::vector<std::function<Result()>>& tasks,
    std::future<Result> (*start)(const std::function<Result()>&) = in_a_thread<Result>) {
  std::vector<std::future<Result>> running;
  for (const auto& task : tasks) {
    try {
      running.push_back(start(task));
    } catch (const std::system_error&) {
      std::promise<Result> done;
      done.set_value(task());
      running.push_back(done.get_future());
    }
  }
  std::vector<Result> results;
  for (std::future<Result>& each : running) results.push_back(each.get());
  return results;
}

// Every collective with every dtype and awkward sizes, against answers computed here.

struct CheckResult {
  std::string operation;
  int dtypes = 0;
  int cases = 0;
  int failures = 0;           // on this rank
  std::string first_failure;  // empty: none
};

// Collective: every rank calls it. One result per operation, and one for "mismatch" (that ranks
// which disagree get an error) where there is more than one rank.
std::vector<CheckResult> check_all();

}  // namespace hora::smoke
