// SPDX-License-Identifier: Apache-2.0
#include "launcher/failures/failure_code.h"

#include "tests/support/catch.h"

using namespace hora::launcher;

TEST_CASE("the limit of open files that was reached is the one to raise") {
  CHECK(failure::open_files_advice(EMFILE, "here") ==
        "raise the limit of open files here (ulimit -n)");
  CHECK(failure::open_files_advice(ENFILE, "there") ==
        "raise the limit of open files there (sysctl fs.file-max)");
  for (const int other : {0, ENOSPC, ENOENT})
    CHECK(failure::open_files_advice(other, "here").empty());
}
