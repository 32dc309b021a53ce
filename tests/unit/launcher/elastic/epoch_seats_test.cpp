// SPDX-License-Identifier: Apache-2.0
#include "launcher/elastic/epoch_seats.h"

#include "tests/support/catch.h"

using namespace hora;
using namespace hora::launcher;
using namespace hora::launcher::elastic;

namespace {

TimePoint at(int seconds) { return TimePoint{} + std::chrono::seconds(seconds); }

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
