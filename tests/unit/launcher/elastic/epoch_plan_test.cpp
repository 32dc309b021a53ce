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

TEST_CASE("no present worker makes room for a new one") {
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

using namespace hora;
using namespace hora::launcher;
using namespace hora::launcher::elastic;
using namespace std::chrono_literals;

namespace {

Host host(std::string name, int slots) {
  Host made;
  made.name = std::move(name);
  made.slots = slots;
  return made;
}

TimePoint at(int seconds) { return TimePoint{} + std::chrono::seconds(seconds); }

}  // namespace

TEST_CASE("a host offers its survivors up to the first gap, and room where an agent is idle") {
  Roster roster;
  const IncarnationId agent = roster.connect(host("a", 4), at(1));
  for (const int local_rank : {0, 1, 3}) {
    const WorkerId worker = roster.order(agent, local_rank, local_rank, false);
    roster.worker(worker).phase = WorkerPhase::kRunning;
  }
  roster.worker(0).has_state = true;
  HostOffer offer = roster.offer_of(host("a", 4), roster.survivors());
  CHECK(offer.survivors == 2);
  CHECK(offer.room == 0);
  CHECK(offer.has_state);
  roster.incarnation(roster.connect(host("a", 4), at(1))).phase = IncarnationPhase::kIdle;
  offer = roster.offer_of(host("a", 4), roster.survivors());
  CHECK(offer.room == 2);
  offer = roster.offer_of(host("b", 2), roster.survivors());
  CHECK(offer.survivors == 0);
  CHECK_FALSE(offer.has_state);
}

TEST_CASE("an agent ends once, and its workers with it") {
  Roster roster;
  const IncarnationId agent = roster.connect(host("a", 3), at(1));
  const WorkerId running = roster.order(agent, 0, 0, true);
  const WorkerId leaving = roster.order(agent, 1, 1, true);
  const WorkerId done = roster.order(agent, 2, 2, true);
  roster.worker(running).phase = WorkerPhase::kRunning;
  roster.worker(leaving).phase = WorkerPhase::kLeaving;
  roster.worker(done).phase = WorkerPhase::kSucceeded;
  CHECK(roster.end(agent));
  CHECK_FALSE(roster.end(agent));
  CHECK(roster.worker(running).phase == WorkerPhase::kFailed);
  CHECK(roster.worker(leaving).phase == WorkerPhase::kGone);
  CHECK(roster.worker(done).phase == WorkerPhase::kSucceeded);
  // Its end was asked for, so it is not a failure.
  CHECK_FALSE(roster.lose(agent));
}

TEST_CASE("a lost agent is a failure only if it was still needed") {
  Roster roster;
  const IncarnationId idle = roster.connect(host("a", 1), at(1));
  roster.incarnation(idle).phase = IncarnationPhase::kIdle;
  CHECK(roster.lose(idle));
  CHECK_FALSE(roster.lose(idle));

  const IncarnationId finished = roster.connect(host("b", 1), at(1));
  roster.incarnation(finished).phase = IncarnationPhase::kRunning;
  roster.worker(roster.order(finished, 0, 0, true)).phase = WorkerPhase::kSucceeded;
  CHECK_FALSE(roster.lose(finished));

  const IncarnationId busy = roster.connect(host("c", 1), at(1));
  roster.incarnation(busy).phase = IncarnationPhase::kRunning;
  const WorkerId worker = roster.order(busy, 0, 0, true);
  roster.worker(worker).phase = WorkerPhase::kAsking;
  CHECK(roster.lose(busy));
  CHECK(roster.worker(worker).phase == WorkerPhase::kFailed);
}

TEST_CASE("who is late is known by its deadline, and who leaves late is named once") {
  Roster roster;
  const IncarnationId slow = roster.connect(host("a", 1), at(5));
  const IncarnationId prompt = roster.connect(host("b", 1), at(5));
  roster.incarnation(prompt).phase = IncarnationPhase::kIdle;
  const WorkerId worker = roster.order(prompt, 0, 0, true);
  roster.worker(worker).phase = WorkerPhase::kLeaving;
  roster.worker(worker).leave_by = at(3);
  CHECK(roster.next_deadline() == at(3));
  CHECK(roster.late_to_connect(at(4)).empty());
  CHECK(roster.take_late_to_leave(at(3)) == std::vector<WorkerId>{worker});
  CHECK(roster.take_late_to_leave(at(9)).empty());
  CHECK(roster.next_deadline() == at(5));
  CHECK(roster.late_to_connect(at(5)) == std::vector<IncarnationId>{slow});
  CHECK(roster.is_connecting());
}

using namespace hora;
using namespace hora::launcher;
using namespace hora::launcher::elastic;

namespace {

// Hosts, each with an idle agent.
struct Fixture {
  IncarnationId add_idle(const std::string& name) {
    Host host;
    host.name = name;
    const IncarnationId id = roster.connect(host, at(1));
    roster.incarnation(id).phase = IncarnationPhase::kIdle;
    return id;
  }
  // Ranks are counted along the hosts.
  static Plan plan(const std::vector<std::pair<std::string, int>>& hosts) {
    std::vector<HostOffer> offers;
    for (const auto& [name, slots] : hosts) {
      HostOffer offer;
      offer.host.name = name;
      offer.room = slots;
      offers.push_back(offer);
    }
    return plan_epoch(std::move(offers), std::nullopt);
  }
  // The first epoch, running: two ranks on each of two hosts.
  Fixture() {
    const IncarnationId a = add_idle("a");
    const IncarnationId b = add_idle("b");
    seats.take(plan({{"a", 2}, {"b", 2}}), true, roster);
    roster.incarnation(a).phase = IncarnationPhase::kReady;
    CHECK_FALSE(seats.all_ready(roster));
    roster.incarnation(b).phase = IncarnationPhase::kReady;
    CHECK(seats.all_ready(roster));
    seats.begin(at(9), roster);
  }

  Roster roster;
  EpochSeats seats;
};

}  // namespace

TEST_CASE("the new workers of a host share one agent") {
  Fixture epoch;
  CHECK(epoch.seats.new_incarnations() == std::vector<IncarnationId>{0, 1});
  CHECK(epoch.seats.all() ==
        std::vector<Seat>{{0, 0, true}, {1, 0, true}, {2, 1, true}, {3, 1, true}});
  CHECK(epoch.roster.worker(3).phase == WorkerPhase::kRunning);
  CHECK(epoch.roster.worker(3).rank == 3);
  CHECK(epoch.seats.includes(1));
  CHECK_FALSE(epoch.seats.includes(2));
}

TEST_CASE("survivors keep their seats, and one without a seat leaves in order") {
  Fixture epoch;
  for (WorkerId id = 0; id < 4; ++id) epoch.roster.worker(id).phase = WorkerPhase::kAsking;
  const IncarnationId c = epoch.add_idle("c");
  epoch.seats.take(Fixture::plan({{"a", 2}, {"b", 1}, {"c", 1}}), false, epoch.roster);
  CHECK(epoch.seats.all() ==
        std::vector<Seat>{{0, 0, false}, {1, 0, false}, {2, 1, false}, {4, c, true}});
  CHECK(epoch.seats.new_incarnations() == std::vector<IncarnationId>{c});
  CHECK(epoch.seats.dismissed() == std::vector<WorkerId>{3});
  epoch.seats.begin(at(9), epoch.roster);
  CHECK(epoch.roster.worker(3).phase == WorkerPhase::kLeaving);
  CHECK(epoch.roster.worker(3).leave_by == at(9));
}

TEST_CASE("a dismissed worker that has ended meanwhile is not waited for") {
  Fixture epoch;
  for (WorkerId id = 0; id < 4; ++id) epoch.roster.worker(id).phase = WorkerPhase::kAsking;
  epoch.seats.take(Fixture::plan({{"a", 2}, {"b", 1}}), false, epoch.roster);
  epoch.roster.worker(3).phase = WorkerPhase::kFailed;
  epoch.seats.begin(at(9), epoch.roster);
  CHECK(epoch.seats.dismissed().empty());
  CHECK(epoch.roster.worker(3).phase == WorkerPhase::kFailed);
}

TEST_CASE("a plan that no longer holds voids the orders, and survivors keep their seats") {
  Fixture epoch;
  for (WorkerId id = 0; id < 4; ++id) epoch.roster.worker(id).phase = WorkerPhase::kAsking;
  const IncarnationId c = epoch.add_idle("c");
  epoch.seats.take(Fixture::plan({{"a", 2}, {"b", 1}, {"c", 1}}), false, epoch.roster);
  CHECK(epoch.seats.discard(epoch.roster) == std::vector<IncarnationId>{c});
  CHECK(epoch.seats.new_incarnations().empty());
  CHECK(epoch.seats.dismissed().empty());
  CHECK(epoch.seats.all().size() == 4);
  CHECK(epoch.seats.any(WorkerPhase::kAsking, epoch.roster));
  CHECK_FALSE(epoch.seats.includes(c));
}
