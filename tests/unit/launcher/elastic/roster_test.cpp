// SPDX-License-Identifier: Apache-2.0
#include "launcher/elastic/roster.h"

#include "tests/support/catch.h"

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
  // Its end was asked for, so it is no failure.
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
