// SPDX-License-Identifier: Apache-2.0
#include "apps/smoke/checks.h"

#include <atomic>
#include <thread>

#include "tests/support/catch.h"

using namespace hora::smoke;

namespace {

int threads_left = 0;

std::future<int> while_there_are_threads(const std::function<int()>& task) {
  if (threads_left-- > 0) return in_a_thread<int>(task);
  throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
}

}  // namespace

TEST_CASE("tasks run at the same time") {
  std::atomic<int> waiting{0};
  std::vector<std::function<int()>> tasks;
  for (int i = 0; i < 4; ++i) {
    tasks.push_back([&waiting, i] {
      ++waiting;
      while (waiting < 4) std::this_thread::yield();
      return i;
    });
  }
  CHECK(run_at_once<int>(tasks) == std::vector<int>{0, 1, 2, 3});
}

TEST_CASE("tasks without a thread run one after the other, in their order") {
  for (const int threads : {0, 1, 2}) {
    threads_left = threads;
    std::vector<int> here;
    std::vector<std::function<int()>> tasks;
    for (int i = 0; i < 4; ++i) {
      tasks.push_back([&here, own = std::this_thread::get_id(), i] {
        if (std::this_thread::get_id() == own) here.push_back(i);
        return i;
      });
    }
    CHECK(run_at_once<int>(tasks, while_there_are_threads) == std::vector<int>{0, 1, 2, 3});
    REQUIRE(here.size() == static_cast<std::size_t>(4 - threads));
    for (std::size_t i = 0; i < here.size(); ++i) CHECK(here[i] == threads + static_cast<int>(i));
  }
}
