// SPDX-License-Identifier: Apache-2.0
#include "launcher/text/text.h"

#include "tests/support/catch.h"

namespace hora::launcher {
namespace {

TEST_CASE("a JSON string has no quote, backslash or control character of the text as it is") {
  CHECK(json_text("/home/me/a \"b\" \\c") == R"("/home/me/a \"b\" \\c")");
  CHECK(json_text("a\nb\x1b\xff") == R"("a b??")");
  CHECK(json_text("") == R"("")");
}

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

TEST_CASE("Versions are compared by their numbers") {
  CHECK(compare_versions("2.10", "2.9") > 0);
  CHECK(compare_versions("2.4.0+cu121", "2.4") == 0);
  CHECK(compare_versions("525.60.13", "525.60.13") == 0);
  CHECK(compare_versions("470.57", "525") < 0);
}

}  // namespace
}  // namespace hora::launcher
