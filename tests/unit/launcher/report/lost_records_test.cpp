// SPDX-License-Identifier: Apache-2.0
#include "launcher/report/lost_records.h"

#include <signal.h>

#include <cerrno>

#include "tests/support/catch.h"

using namespace hora::launcher;

TEST_CASE("a job that succeeded fails when something is lost that it was to leave") {
  const JobOutcome good;
  CHECK(final_exit_code(good, {}) == 0);
  CHECK(final_exit_code(good, {true, 0, 0}) == 125);
  CHECK(final_exit_code(good, {true, EPIPE, SIGINT}) == 125);
  CHECK(final_exit_code(good, {false, EPIPE, 0}) == 128 + SIGPIPE);
  CHECK(final_exit_code(good, {false, EPIPE, SIGINT}) == 128 + SIGPIPE);
  CHECK(final_exit_code(good, {false, ENOSPC, 0}) == 0);  // then a record is lost, too
  CHECK(final_exit_code(good, {false, 0, SIGTERM}) == 128 + SIGTERM);
}

TEST_CASE("the failure of a rank comes before what is lost") {
  JobOutcome failed;
  failed.cause.emplace();
  failed.cause->exit_code = 7;
  CHECK(final_exit_code(failed, {true, EPIPE, SIGINT}) == 7);
}
