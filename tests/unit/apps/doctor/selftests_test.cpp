// SPDX-License-Identifier: Apache-2.0
#include "apps/doctor/selftests.h"

#include <signal.h>

#include "tests/support/catch.h"

using namespace hora::doctor;

namespace {

constexpr std::chrono::milliseconds kTimeout{5'000};

Answer answered(const std::string& output, int exit_code = 0) {
  Answer answer;
  answer.output = output;
  answer.exit_code = exit_code;
  return answer;
}

}  // namespace

TEST_CASE("a result is returned as it is") {
  const auto result = selftest_result(
      answered("{\"stage\":\"loading "
               "it\"}\n{\"result\":{\"version\":\"4.1.4\"}}\n{\"stage\":\"end\"}\n"),
      kTimeout);
  CHECK(result.dump() == R"({"version":"4.1.4"})");
}

TEST_CASE("a failure is returned with the stage that it happened in") {
  const auto result =
      selftest_result(answered("{\"stage\":\"loading it\"}\n{\"result\":{\"error\":\"no such "
                               "file\"}}\n{\"stage\":\"end\"}\n",
                               1),
                      kTimeout);
  CHECK(result["error"] == "no such file");
  CHECK(result["stage"] == "loading it");
}

TEST_CASE("a crash, a hang and an early end are failures at their stage") {
  Answer crash = answered("{\"stage\":\"starting it\"}\n", -1);
  crash.signal = SIGSEGV;
  CHECK(selftest_result(crash, kTimeout)["error"] == "it was ended by SIGSEGV");
  CHECK(selftest_result(crash, kTimeout)["stage"] == "starting it");
  Answer hang = answered("noise\n{\"stage\":\"starting it\"}\n", -1);
  hang.timed_out = true;
  CHECK(selftest_result(hang, kTimeout)["error"] == "it did not end within 5 s");
  Answer early = answered("", 127);
  early.errors = "first\nhora-selftest: /lib/libc.so.6: version `GLIBC_2.99' not found\n";
  CHECK(selftest_result(early, kTimeout)["error"] ==
        "it ended with code 127: hora-selftest: /lib/libc.so.6: version `GLIBC_2.99' not found");
  CHECK(selftest_result(Answer{}, kTimeout)["error"] == "it could not be started");
}

TEST_CASE("a library that works and then hangs at the end is a failure of its end") {
  Answer answer = answered(
      "{\"stage\":\"adding numbers\"}\n{\"result\":{\"version\":\"1\"}}\n{\"stage\":\"end\"}\n",
      -1);
  answer.timed_out = true;
  const auto result = selftest_result(answer, kTimeout);
  CHECK(result["stage"] == "end");
  CHECK(result["error"] == "it did not end within 5 s");
}
