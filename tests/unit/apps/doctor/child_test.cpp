// SPDX-License-Identifier: Apache-2.0
// Programs that are asked something: how they end, and that none of them keeps us.
#include "apps/doctor/child.h"

#include <signal.h>

#include <cerrno>
#include <cstdlib>

#include "tests/support/catch.h"

using namespace hora::doctor;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

constexpr seconds kTimeout{60};

Answer shell(const std::string& script, milliseconds timeout = kTimeout) {
  return ask({"sh", "-c", script}, timeout);
}

}  // namespace

TEST_CASE("a program's output, its errors and its exit code are returned") {
  const Answer answer = shell("echo said; echo why >&2; exit 3");
  CHECK(answer.output == "said\n");
  CHECK(answer.errors == "why\n");
  CHECK(answer.exit_code == 3);
  CHECK_FALSE(answer.timed_out);
}

TEST_CASE("a crash is returned as its signal") {
  const Answer answer = shell("echo begun; kill -SEGV $$");
  CHECK(answer.output == "begun\n");
  CHECK(answer.signal == SIGSEGV);
  CHECK(answer.exit_code == -1);
}

TEST_CASE("one that hangs is killed with its children") {
  const Answer answer = shell("sleep 1000 & echo $!; wait", milliseconds(300));
  CHECK(answer.timed_out);
  const int child = std::atoi(answer.output.c_str());
  REQUIRE(child > 0);
  // An orphan's end is seen by its new parent: gone, or a zombie that was not reaped yet.
  const Answer state =
      shell("for i in 1 2 3 4 5 6 7 8 9 10; do grep -qs '^State:.[^Z]' /proc/" +
            std::to_string(child) + "/status || { echo gone; exit; }; sleep 0.2; done");
  CHECK(state.output == "gone\n");
}

TEST_CASE("a program that ends and leaves its pipes to a child does not delay the answer") {
  const Answer answer = shell("echo $$; sleep 1000 & exit 4");
  CHECK(answer.exit_code == 4);
  ::kill(-std::atoi(answer.output.c_str()), SIGKILL);
}

TEST_CASE("one that closes its output and goes on is waited for") {
  const Answer answer = shell("exec >&- 2>&-; sleep 0.3; exit 5");
  CHECK(answer.exit_code == 5);
}

TEST_CASE("a program that does not exist has the exit code that a shell gives it") {
  CHECK(ask({"no-such-program-at-all"}, kTimeout).exit_code == 127);
}

TEST_CASE("variables are added, replaced and dropped") {
  ::setenv("DOCTOR_TEST_OLD", "old", 1);
  ::setenv("DOCTOR_TEST_GONE", "gone", 1);
  const Answer answer =
      ask({"sh", "-c", "echo $DOCTOR_TEST_OLD $DOCTOR_TEST_NEW $DOCTOR_TEST_GONE"}, kTimeout,
          {{"DOCTOR_TEST_OLD", "a"}, {"DOCTOR_TEST_NEW", "b"}}, {"DOCTOR_TEST_G"});
  CHECK(answer.output == "a b\n");
}
