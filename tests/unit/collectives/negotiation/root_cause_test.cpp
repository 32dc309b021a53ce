// SPDX-License-Identifier: Apache-2.0
#include "collectives/negotiation/root_cause.h"

#include "tests/support/catch.h"

using hora::collectives::Origin;
using hora::collectives::RootCause;

TEST_CASE("root_cause: nothing is known at first") {
  const RootCause root_cause;
  CHECK_FALSE(root_cause.cause());
  CHECK_FALSE(root_cause.certain());
}

TEST_CASE("root_cause: a lost connection outweighs complaints, whatever came first") {
  for (bool complaint_first : {true, false}) {
    RootCause root_cause;
    if (complaint_first) root_cause.complained(1, "its neighbour hung up");
    root_cause.lost(2, "closed");
    if (!complaint_first) root_cause.complained(1, "its neighbour hung up");
    REQUIRE(root_cause.cause());
    CHECK(root_cause.certain());
    CHECK(root_cause.cause()->rank == 2);
    CHECK(root_cause.cause()->lost);
    CHECK(root_cause.cause()->text == "closed");
  }
}

TEST_CASE("root_cause: the first of several") {
  RootCause root_cause;
  root_cause.lost(3, "first");
  root_cause.lost(1, "second");
  CHECK(root_cause.cause()->rank == 3);
  RootCause complaints;
  complaints.complained(2, "first");
  complaints.complained(1, "second");
  CHECK(complaints.cause()->rank == 2);
  CHECK_FALSE(complaints.certain());
}

TEST_CASE("root_cause: who knows that it began outweighs who only noticed") {
  RootCause root_cause;
  root_cause.complained(0, "a peer has gone");
  root_cause.complained(2, "out of memory", Origin::kHere);
  root_cause.complained(1, "out of memory, too", Origin::kHere);
  CHECK(root_cause.cause()->rank == 2);
  CHECK(root_cause.cause()->text == "out of memory");
  CHECK_FALSE(root_cause.certain());
  root_cause.lost(3, "closed");
  CHECK(root_cause.cause()->rank == 3);
}

TEST_CASE("root_cause: a rank that was asked to abort is not the cause") {
  RootCause root_cause;
  root_cause.complained(0, "the job is ending", Origin::kElsewhere);
  CHECK(root_cause.cause()->rank == 0);
  root_cause.complained(1, "a peer has gone");
  CHECK(root_cause.cause()->rank == 1);
}

TEST_CASE("root_cause: a rank that gives up after it has complained is not the one that was lost") {
  RootCause root_cause;
  root_cause.complained(1, "its neighbour hung up");
  root_cause.lost(1, "closed");
  CHECK_FALSE(root_cause.certain());
  CHECK_FALSE(root_cause.cause()->lost);
  root_cause.lost(2, "closed");
  CHECK(root_cause.cause()->rank == 2);
}
