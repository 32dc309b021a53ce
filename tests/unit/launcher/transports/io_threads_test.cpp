// SPDX-License-Identifier: Apache-2.0
#include "launcher/transports/io_threads.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <future>

#include "tests/support/catch.h"

namespace hora::launcher {
namespace {

using std::chrono::milliseconds;

milliseconds processor_time_of_this_thread() {
  timespec time{};
  (void)::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);  // fails for unknown clocks only
  return std::chrono::duration_cast<milliseconds>(std::chrono::seconds(time.tv_sec) +
                                                  std::chrono::nanoseconds(time.tv_nsec));
}

TEST_CASE("A thread that waits in a system call is given up, one that computes is waited for") {
  auto threads = IoThreads::start(2);
  REQUIRE(threads);
  std::promise<void> under_way;

  SECTION("it waits") {
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    (*threads)->loop(0).post([&] {
      under_way.set_value();
      char byte = 0;
      (void)!::read(ends[0], &byte, 1);
    });
    under_way.get_future().wait();
    CHECK_FALSE((*threads)->stop(milliseconds(20)));
    REQUIRE(::write(ends[1], "x", 1) == 1);
    CHECK((*threads)->stop());
    ::close(ends[0]);
    ::close(ends[1]);
  }
  SECTION("it computes") {
    bool done = false;
    (*threads)->loop(0).post([&] {
      under_way.set_value();
      const auto until = processor_time_of_this_thread() + milliseconds(300);
      while (processor_time_of_this_thread() < until) {
      }
      done = true;
    });
    under_way.get_future().wait();
    CHECK((*threads)->stop(milliseconds(200)));
    CHECK(done);
  }
}

}  // namespace
}  // namespace hora::launcher
