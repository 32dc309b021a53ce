// SPDX-License-Identifier: Apache-2.0
#include "launcher/elastic/epoch_plan.h"

#include "tests/support/catch.h"

using namespace hora::launcher;
using namespace hora::launcher::elastic;

namespace {

HostOffer offer(const std::string& name, int survivors, int room, bool has_state = true) {
  return {Host{name, "", survivors + room}, survivors, room, has_state};
}

}  // namespace

TEST_CASE("survivors come in the order of the offers, new ranks behind those of their host") {
  const Plan plan =
      plan_epoch({offer("a", 1, 1), offer("b", 2, 0), offer("c", 0, 1)}, std::nullopt);
  CHECK(describe_plan(plan) == "5 ranks: a:2, b:2, c:1");
  CHECK(plan.hosts[1].slots[0].rank == 2);
  CHECK(plan.hosts[1].slots[0].local_rank == 0);
  CHECK(plan.hosts[2].slots[0].cross_rank == 2);
  CHECK(plan.hosts[2].slots[0].cross_size == 3);
}

TEST_CASE("nobody who is there makes room for somebody new") {
  CHECK(describe_plan(plan_epoch({offer("a", 1, 3), offer("b", 2, 0)}, 4)) == "4 ranks: a:2, b:2");
  CHECK(describe_plan(plan_epoch({offer("a", 1, 3), offer("b", 2, 0)}, 3)) == "3 ranks: a:1, b:2");
}

TEST_CASE("above the most the last ones go") {
  CHECK(describe_plan(plan_epoch({offer("a", 2, 0), offer("b", 2, 5)}, 3)) == "3 ranks: a:2, b:1");
  CHECK(describe_plan(plan_epoch({offer("a", 2, 0), offer("b", 2, 5)}, 1)) == "1 rank: a:1");
}

TEST_CASE("rank 0 is on a host that knows the state") {
  const Plan plan =
      plan_epoch({offer("a", 1, 0, false), offer("b", 1, 0), offer("c", 1, 0)}, std::nullopt);
  CHECK(describe_plan(plan) == "3 ranks: b:1, a:1, c:1");
  CHECK(describe_plan(plan_epoch({offer("a", 0, 2, false), offer("b", 1, 0)}, std::nullopt)) ==
        "3 ranks: b:1, a:2");
}

TEST_CASE("no offer, no rank") {
  CHECK(plan_epoch({}, std::nullopt).world_size == 0);
  CHECK(plan_epoch({offer("a", 0, 0)}, 4).world_size == 0);
}

TEST_CASE("what changes between two plans") {
  const Plan ab = plan_epoch({offer("a", 0, 2), offer("b", 0, 1)}, std::nullopt);
  const Plan ab2 = plan_epoch({offer("a", 0, 2), offer("b", 0, 2)}, std::nullopt);
  const Plan ac = plan_epoch({offer("a", 0, 2), offer("c", 0, 1)}, std::nullopt);
  CHECK(compare_plans(ab, ab) == PlanChange{});
  CHECK(compare_plans(ab, ab2) == PlanChange{false, true});
  CHECK(compare_plans(ab2, ab) == PlanChange{true, false});
  CHECK(compare_plans(ab, ac) == PlanChange{true, true});
  CHECK(compare_plans(ab, Plan{}) == PlanChange{true, false});
}
