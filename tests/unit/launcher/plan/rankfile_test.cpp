// SPDX-License-Identifier: Apache-2.0
#include "launcher/plan/rankfile.h"

#include "launcher/plan/plan.h"
#include "tests/support/catch.h"

namespace hora::launcher {
namespace {

std::string error_of(std::string_view text) {
  const auto lines = parse_rankfile(text, "ranks");
  UNSCOPED_INFO(text);
  REQUIRE_FALSE(lines);
  CHECK(lines.error().code == ErrorCode::kUsage);
  return lines.error().message.substr(0, lines.error().message.find('\n'));
}

std::vector<RankLine> lines_of(std::string_view text) {
  auto lines = parse_rankfile(text, "ranks");
  if (!lines) FAIL(lines.error().message);
  return *lines;
}

std::string seat_error(std::string_view text, JobSpec job) {
  const auto seated = seat_ranks(lines_of(text), "ranks", job);
  REQUIRE_FALSE(seated);
  return seated.error().message;
}

TEST_CASE("Rankfile: the lines of Open MPI's manual") {
  const auto lines = lines_of(
      "# placed by hand\n"
      "rank 1=bb slot=0:0,1   // two cores\n"
      "rank 0=aa slot=1:0-2\r\n"
      "\n"
      "  rank 2 = cc slot = 1-2\n"
      "rank 3=+n2 slots=*\n"
      "rank 4=me@[fe80::1]");
  REQUIRE(lines.size() == 5);
  CHECK((lines[0].host.name == "aa" && lines[0].cores == "1:0-2" && lines[0].number == 3));
  CHECK((lines[1].host.name == "bb" && lines[1].cores == "0:0,1" && lines[1].number == 2));
  CHECK((lines[2].host.name == "cc" && lines[2].cores == "1-2" && lines[2].rank == 2));
  CHECK((lines[3].relative == 2 && lines[3].cores == "*"));
  CHECK((lines[4].host == Host{"fe80::1", "me", {}} && lines[4].cores.empty()));
}

TEST_CASE("Rankfile: what is wrong, and where") {
  CHECK(error_of("rank 0=a slot=0\nrnak 1=a slot=1\n") ==
        "ranks:2:1: expected 'rank N=HOST slot=CORES'");
  CHECK(error_of("rank x=a") == "ranks:1:6: expected the number of a rank, such as 0");
  CHECK(error_of("rank -1=a") == "ranks:1:6: expected the number of a rank, such as 0");
  CHECK(error_of("rank 0 a") == "ranks:1:8: expected '=' and the rank's host");
  CHECK(error_of("rank 0= slot=1") ==
        "ranks:1:9: expected the rank's host, or its place such as +n0");
  CHECK(error_of("rank 0=") == "ranks:1:8: expected the rank's host, or its place such as +n0");
  CHECK(error_of("rank 0=+e slot=1") == "ranks:1:8: expected a host, or its place such as +n0");
  CHECK(error_of("rank 0=a:2 slot=1") == "ranks:1:8: expected one host, without slots");
  CHECK(error_of("rank 0=n[1-2] slot=1") == "ranks:1:8: expected one host, without slots");
  CHECK(error_of("rank 0=a slots 1") == "ranks:1:16: expected slot=CORES, or the end of the line");
  CHECK(error_of("rank 0=a slot=1 2") == "ranks:1:17: expected the end of the line");
  CHECK(error_of("rank 0=a slot=0:x").find("ranks:1:17: expected cores such as 0-3") == 0);
  CHECK(error_of("rank 0=a slot=").find("ranks:1:15: expected cores such as 0-3") == 0);
  CHECK(error_of("rank 0=a\n\nrank 0=b") == "ranks:3:1: rank 0 has a line already, line 1");
  CHECK(error_of("rank 0=a\nrank 2=a") ==
        "ranks: rank 1 has no line; each rank from 0 to 2 needs one");
  CHECK(error_of("# nothing\n") == "ranks: no ranks; expected 'rank N=HOST slot=CORES'");
}

TEST_CASE("Rankfile: the job's hosts, or those of the file") {
  const auto lines = lines_of("rank 0=b slot=0\nrank 1=a slot=0\nrank 2=B slot=1\n");
  JobSpec job;
  REQUIRE(seat_ranks(lines, "ranks", job));
  CHECK(format_host_list(job.hosts) == "b:2,a:1");
  CHECK(job.num_proc == 3);

  JobSpec given;
  given.num_proc = 3;
  given.hosts = {{"a", "", 4}, {"b", "", {}}, {"c", "", {}}};
  REQUIRE(seat_ranks(lines, "ranks", given));
  CHECK(format_host_list(given.hosts) == "a:4,b:2,c:0");
  CHECK(given.seats == std::vector<RankSeat>{{1, "0"}, {0, "0"}, {1, "1"}});

  // Rank 0's host leads, as the meeting place is there.
  const Plan plan = plan_job(given, given.hosts).value();
  CHECK(plan.world_size == 3);
  REQUIRE(plan.hosts.size() == 2);
  CHECK((plan.hosts[0].host.name == "b" && plan.hosts[0].index == 0));
  CHECK((plan.hosts[1].host.name == "a" && plan.hosts[1].index == 1));
  CHECK(plan.hosts[0].slots == std::vector<Slot>{{0, 0, 0, 2, "0"}, {2, 1, 0, 1, "1"}});
  CHECK(plan.hosts[1].slots == std::vector<Slot>{{1, 0, 1, 2, "0"}});

  JobSpec two;
  two.num_proc = 2;
  CHECK(seat_error("rank 0=a", two) == "-np asks for 2 ranks, and ranks has lines for 1");
  given.num_proc = 0;
  CHECK(seat_error("rank 0=x", given).find("ranks:1: 'x' is not one of the job's hosts: a, b") ==
        0);
  CHECK(seat_error("rank 0=+n0", {}) ==
        "ranks:1: there is no +n0; the job names no hosts, give them with -H or --hostfile");
  CHECK(seat_error("rank 0=+n3", given).find("ranks:1: there is no +n3; the job's hosts are") == 0);
  JobSpec one;
  one.hosts = {{"a", "", 1}};
  CHECK(seat_error("rank 0=a\nrank 1=a", one) ==
        "ranks:2: a has 1 slot, and this is one rank more; give it more slots");
}

}  // namespace
}  // namespace hora::launcher
