// SPDX-License-Identifier: Apache-2.0
#include "launcher/report/hang_report_text.h"

#include "tests/support/catch.h"

using namespace hora::launcher;

namespace {

std::vector<HostPlan> two_hosts() {
  std::vector<HostPlan> hosts(2);
  for (int i = 0; i < 2; ++i) {
    hosts[static_cast<std::size_t>(i)].host.name = i == 0 ? "a" : "b";
    for (int rank = 2 * i; rank < 2 * i + 2; ++rank) {
      Slot slot;
      slot.rank = rank;
      hosts[static_cast<std::size_t>(i)].slots.push_back(slot);
    }
  }
  return hosts;
}

RankStanding rank_in(int rank, CollectiveStanding standing) {
  RankStanding out;
  out.host = rank / 2;
  out.process.rank = rank;
  out.process.leader = true;
  out.process.standing = std::move(standing);
  return out;
}

CollectiveStanding joined() {
  CollectiveStanding standing;
  standing.state = "joined";
  standing.process_sets = 1;
  return standing;
}

CollectiveStanding waiting(const std::string& text, std::int64_t ms, std::int64_t set = 0) {
  CollectiveStanding standing = joined();
  standing.operations.push_back({text, false, ms, set});
  return standing;
}

CollectiveStanding idle(const std::string& last, std::int64_t ms) {
  CollectiveStanding standing = joined();
  standing.last = last;
  standing.last_ended_ms = ms;
  return standing;
}

const WaitingRank& row_of(const std::vector<WaitingRank>& rows, int rank) {
  for (const WaitingRank& row : rows) {
    if (row.rank == rank) return row;
  }
  FAIL("no such rank");
  return rows.front();
}

}  // namespace

TEST_CASE("waiting: the one that has not come is behind, and first") {
  const auto rows = find_waiting(
      {rank_in(0, waiting("allreduce 'x'", 3000)), rank_in(1, idle("allreduce 'w'", 4100)),
       rank_in(2, waiting("allreduce 'x'", 3500)), rank_in(3, waiting("allreduce 'x'", 2000))},
      {}, two_hosts());
  REQUIRE(rows.size() == 4);
  CHECK(rows[0].rank == 1);
  CHECK(rows[0].behind_ms == 3500);
  CHECK(rows[0].waits_for.empty());
  CHECK(row_of(rows, 2).waits_for == std::vector<int>{1});
  CHECK(row_of(rows, 2).behind_ms == 0);
  CHECK(waiting_table(rows) ==
        "  rank         stands in                                  for       behind    waits for\n"
        "  1            no collective; its last was allreduce 'w'  4.1 s     3.5 s     -\n"
        "  0,2,3        allreduce 'x'                              3.5 s     -         rank 1\n");
}

TEST_CASE("waiting: a process set that cannot be has no members") {
  const auto rows = find_waiting(
      {rank_in(0, waiting("allreduce 'x'", 3000, -1)), rank_in(1, idle("allreduce 'w'", 4100))}, {},
      two_hosts());
  CHECK(row_of(rows, 0).waits_for.empty());
}

TEST_CASE("waiting: two that wait for each other") {
  const auto rows = find_waiting(
      {rank_in(0, waiting("allreduce 'x'", 3000)), rank_in(1, waiting("allreduce 'y'", 2000))}, {},
      two_hosts());
  CHECK(row_of(rows, 0).waits_for == std::vector<int>{1});
  CHECK(row_of(rows, 1).waits_for == std::vector<int>{0});
  CHECK(row_of(rows, 1).behind_ms == 3000);
}

TEST_CASE("waiting: an operation that runs, a process set, and ranks of which nothing is known") {
  CollectiveStanding runs = joined();
  runs.operations.push_back({"broadcast 'b'", true, 900, 0});
  // Rank 1 has done it since, rank 2 has agreed to it and stopped, host b's rank 3 is silent.
  auto rows = find_waiting({rank_in(0, runs), rank_in(1, idle("broadcast 'b'", 100)),
                            rank_in(2, waiting("broadcast 'b'", 950))},
                           {1}, two_hosts());
  CHECK(row_of(rows, 0).waits_for == std::vector<int>{2, 3});
  CHECK(row_of(rows, 3).stands_in == "not known: its host did not answer");

  CollectiveStanding member = idle("", 0);
  member.process_sets = 0b101;
  CollectiveStanding asks = waiting("allreduce 'x'", 500, 2);
  asks.process_sets = 0b101;
  rows =
      find_waiting({rank_in(0, asks), rank_in(1, joined()), rank_in(2, member)}, {}, two_hosts());
  CHECK(row_of(rows, 0).waits_for == std::vector<int>{2});

  CollectiveStanding meets;
  meets.state = "joining";
  rows = find_waiting({rank_in(0, meets), rank_in(1, {})}, {}, two_hosts());
  CHECK(row_of(rows, 0).waits_for == std::vector<int>{1});
  CHECK(row_of(rows, 1).stands_in == "nothing yet: it has not called hvd.init()");
  CHECK(find_waiting({rank_in(0, {})}, {1}, two_hosts()).empty());
}
