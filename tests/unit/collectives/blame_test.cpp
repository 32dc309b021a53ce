#include "collectives/negotiation/blame.h"

#include "tests/support/catch.h"

using hora::collectives::Blame;
using hora::collectives::Origin;

TEST_CASE("blame: nothing is known at first") {
  const Blame blame;
  CHECK_FALSE(blame.cause());
  CHECK_FALSE(blame.certain());
}

TEST_CASE("blame: a lost connection outweighs complaints, whatever came first") {
  for (bool complaint_first : {true, false}) {
    Blame blame;
    if (complaint_first) blame.complained(1, "its neighbour hung up");
    blame.lost(2, "closed");
    if (!complaint_first) blame.complained(1, "its neighbour hung up");
    REQUIRE(blame.cause());
    CHECK(blame.certain());
    CHECK(blame.cause()->rank == 2);
    CHECK(blame.cause()->lost);
    CHECK(blame.cause()->text == "closed");
  }
}

TEST_CASE("blame: the first of several") {
  Blame blame;
  blame.lost(3, "first");
  blame.lost(1, "second");
  CHECK(blame.cause()->rank == 3);
  Blame complaints;
  complaints.complained(2, "first");
  complaints.complained(1, "second");
  CHECK(complaints.cause()->rank == 2);
  CHECK_FALSE(complaints.certain());
}

TEST_CASE("blame: who knows that it began outweighs who only noticed") {
  Blame blame;
  blame.complained(0, "a peer has gone");
  blame.complained(2, "out of memory", Origin::kHere);
  blame.complained(1, "out of memory, too", Origin::kHere);
  CHECK(blame.cause()->rank == 2);
  CHECK(blame.cause()->text == "out of memory");
  CHECK_FALSE(blame.certain());
  blame.lost(3, "closed");
  CHECK(blame.cause()->rank == 3);
}

TEST_CASE("blame: who was told to break off is not the one that began") {
  Blame blame;
  blame.complained(0, "the job is ending", Origin::kElsewhere);
  CHECK(blame.cause()->rank == 0);
  blame.complained(1, "a peer has gone");
  CHECK(blame.cause()->rank == 1);
}

TEST_CASE("blame: a rank that gives up after it has complained is not the one that was lost") {
  Blame blame;
  blame.complained(1, "its neighbour hung up");
  blame.lost(1, "closed");
  CHECK_FALSE(blame.certain());
  CHECK_FALSE(blame.cause()->lost);
  blame.lost(2, "closed");
  CHECK(blame.cause()->rank == 2);
}
