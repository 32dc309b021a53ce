// SPDX-License-Identifier: Apache-2.0
#include "launcher/text/signal_name.h"

#include "tests/support/catch.h"

namespace hora::launcher {
namespace {

TEST_CASE("Signals of the first range have names") {
  for (int signal = 1; signal < 32; ++signal) {
    INFO(signal);
    CHECK(signal_name(signal).rfind("SIG", 0) == 0);
  }
  CHECK(signal_name(11) == "SIGSEGV");
  CHECK(signal_name(29) == "SIGPOLL");
  CHECK(signal_name(0) == "signal 0");
  CHECK(signal_name(63) == "signal 63");
}

}  // namespace
}  // namespace hora::launcher
