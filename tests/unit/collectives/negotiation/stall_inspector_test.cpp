// SPDX-License-Identifier: Apache-2.0
#include "collectives/negotiation/stall_inspector.h"

#include "tests/support/catch.h"

using namespace hora::collectives;
using std::chrono::seconds;

namespace {

const StallInspector::TimePoint kStart{seconds(1000)};

Request allreduce(const std::string& name) {
  Request request;
  request.action = Action::kAllreduce;
  request.name = name;
  return request;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("stall: who is missing, since when, and what it did last") {
  Coordinator coordinator(3);
  StallInspector inspector({true, seconds(60), seconds(0)});
  CHECK(inspector.complaint().empty());
  coordinator.add(2, allreduce("earlier"), kStart - seconds(14));
  coordinator.add(0, allreduce("earlier"), kStart - seconds(14));
  coordinator.add(1, allreduce("earlier"), kStart - seconds(14));
  coordinator.take_ready();
  CHECK_FALSE(coordinator.anything_waiting());
  coordinator.add(0, allreduce("a"), kStart);
  coordinator.add(1, allreduce("a"), kStart + seconds(1));
  coordinator.add(0, allreduce("b"), kStart + seconds(2));
  CHECK(coordinator.anything_waiting());
  CHECK(inspector.next_check() <= kStart);
  CHECK(inspector.check(coordinator, kStart + seconds(3)).warning.empty());
  CHECK(inspector.next_check() == kStart + seconds(60));

  const auto first = inspector.check(coordinator, kStart + seconds(60));
  CHECK(contains(first.warning, "have waited for 60 s"));
  CHECK(contains(first.warning,
                 "\n  rank 2 is missing in allreduce 'a' for 60 s; it last "
                 "submitted allreduce 'earlier', 74 s ago"));
  CHECK_FALSE(contains(first.warning, "rank 1 is"));  // 'b' is not old enough
  CHECK(first.fatal.empty());
  CHECK(inspector.next_check() == kStart + seconds(62));
  const auto second = inspector.check(coordinator, kStart + seconds(62));
  CHECK(contains(second.warning, "rank 1 is missing in allreduce 'b' for 60 s"));
  CHECK(contains(second.warning, "rank 2 is missing in allreduce 'a', allreduce 'b' for 62 s"));
  CHECK(inspector.next_check() == kStart + seconds(122));

  coordinator.add(2, allreduce("a"), kStart + seconds(63));
  coordinator.add(1, allreduce("b"), kStart + seconds(63));
  coordinator.add(2, allreduce("b"), kStart + seconds(63));
  coordinator.take_ready();
  CHECK(inspector.check(coordinator, kStart + seconds(130)).warning.empty());
}

TEST_CASE("stall: six names, then how many; a rank that never said anything") {
  Coordinator coordinator(2);
  StallInspector inspector({true, seconds(5), seconds(0)});
  for (int i = 0; i < 9; ++i) coordinator.add(1, allreduce("t" + std::to_string(i)), kStart);
  const std::string text = inspector.check(coordinator, kStart + seconds(5)).warning;
  CHECK(contains(text, "rank 0 is missing in "));
  CHECK(contains(text, ", ... (9 in all) for 5 s; it has submitted nothing yet"));
  std::size_t names = 0;
  for (std::size_t at = 0; (at = text.find("allreduce 't", at)) != std::string::npos; ++at) ++names;
  CHECK(names == 6);
}

TEST_CASE("stall: a process set is named, a joined rank is not missing") {
  Coordinator coordinator(3);
  const auto set = coordinator.add_set({0, 2});
  StallInspector inspector({true, seconds(1), seconds(0)});
  Request request = allreduce("x");
  request.process_set = set;
  coordinator.add(2, request, kStart);
  Request join;
  join.action = Action::kJoin;
  join.name = "join";
  coordinator.add(1, join, kStart);
  coordinator.add(0, allreduce("world"), kStart);
  const std::string text = inspector.check(coordinator, kStart + seconds(1)).warning;
  CHECK(contains(text, "rank 0 is missing in allreduce 'x' of process set 1 for 1 s"));
  CHECK(contains(text, "rank 2 is missing in allreduce 'world'"));
  CHECK_FALSE(contains(text, "rank 1 is"));
}

TEST_CASE("stall: the job ends when its limit has passed") {
  Coordinator coordinator(2);
  StallInspector inspector({true, seconds(10), seconds(25)});
  coordinator.add(0, allreduce("a"), kStart);
  CHECK(inspector.check(coordinator, kStart + seconds(10)).fatal.empty());
  CHECK(inspector.next_check() == kStart + seconds(20));
  CHECK(inspector.check(coordinator, kStart + seconds(20)).fatal.empty());
  CHECK(inspector.next_check() == kStart + seconds(25));
  const auto report = inspector.check(coordinator, kStart + seconds(25));
  CHECK(report.warning.empty());
  CHECK(contains(report.fatal, "stalled for 25 s"));
  CHECK(contains(report.fatal, "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=25"));
  CHECK(contains(report.fatal, "rank 1 is missing in allreduce 'a'"));
}

TEST_CASE("stall: a limit below the warning is ignored and complained of; off is off") {
  Coordinator coordinator(2);
  coordinator.add(0, allreduce("a"), kStart);
  StallInspector odd({true, seconds(60), seconds(30)});
  CHECK(contains(odd.complaint(), "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"));
  CHECK(odd.check(coordinator, kStart + seconds(100)).fatal.empty());
  StallInspector off({false, seconds(60), seconds(30)});
  CHECK(off.complaint().empty());
  CHECK(off.next_check() == StallInspector::TimePoint::max());
  CHECK(off.check(coordinator, kStart + seconds(100)).warning.empty());
}
