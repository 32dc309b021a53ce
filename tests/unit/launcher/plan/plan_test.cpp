// SPDX-License-Identifier: Apache-2.0
#include "launcher/plan/plan.h"

#include <random>

#include "tests/support/catch.h"

namespace hora::launcher {
namespace {

TEST_CASE("Programs own consecutive ranks") {
  const std::vector<Program> programs{{{"a"}, 2, {}}, {{"b", "c d"}, 1, {}}, {{"e"}, 3, {}}};
  std::vector<std::size_t> found;
  for (int rank = 0; rank < 7; ++rank) found.push_back(program_of_rank(programs, rank));
  CHECK(found == std::vector<std::size_t>{0, 0, 1, 2, 2, 2, 2});

  JobSpec spec;
  spec.command = {"a"};
  CHECK(commands_of(spec) == std::vector<std::vector<std::string>>{{"a"}});
  spec.programs = programs;
  CHECK(programs_text(commands_of(spec)) == "a : b 'c d' : e");
}

Plan plan_of(const std::string& hosts, int num_proc) {
  auto plan = plan_job(parse_host_list(hosts, "-H").value(), num_proc);
  INFO(hosts);
  if (!plan) FAIL(plan.error().message);
  return *plan;
}

std::string plan_error(const std::string& hosts, int num_proc) {
  auto plan = plan_job(parse_host_list(hosts, "-H").value(), num_proc);
  INFO(hosts);
  REQUIRE_FALSE(plan);
  CHECK(plan.error().code == ErrorCode::kUsage);
  return plan.error().message;
}

// "0,2|1": the ranks of each host.
std::string dealt(std::string_view hosts, int num_proc) {
  const auto plan = plan_job(parse_host_list(hosts, "-H").value(), num_proc, MapBy::kNode).value();
  std::string out;
  for (const HostPlan& host : plan.hosts) {
    if (host.index > 0) out += "|";
    for (const Slot& slot : host.slots) {
      out += (slot.local_rank > 0 ? "," : "") + std::to_string(slot.rank);
      CHECK(slot.local_rank == static_cast<int>(&slot - host.slots.data()));
    }
  }
  return out;
}

TEST_CASE("Ranks are dealt to the hosts in turn") {
  CHECK(dealt("a:2,b:2,c:2", 0) == "0,3|1,4|2,5");
  CHECK(dealt("a:4,b:4", 3) == "0,2|1");
  CHECK(dealt("a:1,b:3,c:0,d:2", 0) == "0|1,3,5|2,4");
  CHECK(dealt("a:4,b:4,c:4", 2) == "0|1");
  CHECK(dealt("a:3", 0) == "0,1,2");
  const auto plan = plan_job(parse_host_list("a:1,b:3,d:2", "-H").value(), 0, MapBy::kNode).value();
  CHECK(plan.world_size == 6);
  CHECK(plan.hosts[2].slots[1] == Slot{4, 1, 1, 2});
}

TEST_CASE("Hosts are filled in order with consecutive ranks") {
  const Plan plan = plan_of("a:2,b:1", 3);
  CHECK(plan.world_size == 3);
  REQUIRE(plan.hosts.size() == 2);
  CHECK(plan.hosts[0].slots == std::vector<Slot>{{0, 0, 0, 2}, {1, 1, 0, 1}});
  CHECK(plan.hosts[1].slots == std::vector<Slot>{{2, 0, 1, 2}});
  CHECK(plan.hosts[1].index == 1);
}

TEST_CASE("np is an upper bound and 0 means every slot") {
  const Plan capped = plan_of("a:2,b:2", 3);
  CHECK(capped.world_size == 3);
  CHECK(capped.hosts[1].slots.size() == 1);
  CHECK(plan_of("localhost:4", 2).hosts[0].slots.size() == 2);
  CHECK(plan_of("a:2,b:2", 2).hosts.size() == 1);
  CHECK(plan_of("a:2,b:2", 0).world_size == 4);
}

TEST_CASE("A host listed twice has consistent ranks") {
  const Plan plan = plan_of("a:2,a:2", 4);
  REQUIRE(plan.hosts.size() == 1);
  CHECK(plan.hosts[0].slots[3] == Slot{3, 3, 0, 1});
}

TEST_CASE("A host with 0 slots is skipped") {
  const Plan plan = plan_of("a:0,b:2", 2);
  REQUIRE(plan.hosts.size() == 1);
  CHECK(plan.hosts[0].host.name == "b");
  CHECK(plan.hosts[0].index == 0);
}

TEST_CASE("Too few slots is an error that counts") {
  const std::string message = plan_error("a:2,b:1", 4);
  CHECK(message.find("-np 4 asks for 4 ranks, but the hosts offer 3 slots (a:2, b:1)") == 0);
  CHECK(message.find("Give the hosts more slots (-H a:2,b:2), add hosts") != std::string::npos);
  CHECK(plan_error("a:1", 4).find("Give the host more slots (-H a:4), add") != std::string::npos);
  CHECK(plan_error("n[1-6]:1", 7).find("(-H n1:2,n2:2,n3:2,n4:2,...)") != std::string::npos);
  CHECK(plan_error("a:0", 0).find("no host has a slot (a:0)") == 0);
  CHECK(plan_error("n[1-200000]:65536", 0).find("at most 1000000 ranks") != std::string::npos);
  CHECK_FALSE(plan_job({}, 1));
}

TEST_CASE("Every plan keeps the rules of ranks") {
  std::mt19937 random(11);
  for (int round = 0; round < 500; ++round) {
    std::vector<Host> hosts;
    int total = 0;
    for (std::size_t i = 1 + random() % 6; i > 0; --i) {
      const int slots = static_cast<int>(random() % 5);
      hosts.push_back(Host{"h" + std::to_string(i), "", slots});
      total += slots;
    }
    if (total == 0) continue;
    const int wanted = 1 + static_cast<int>(random() % static_cast<unsigned>(total));
    const Plan plan = plan_job(hosts, wanted).value();
    CHECK(plan.world_size == wanted);
    int rank = 0;
    std::vector<int> crossing(8, 0);
    for (const HostPlan& host : plan.hosts) {
      CHECK_FALSE(host.slots.empty());
      CHECK(host.slots.size() <= static_cast<std::size_t>(*host.host.slots));
      for (std::size_t local = 0; local < host.slots.size(); ++local) {
        CHECK(host.slots[local].rank == rank++);
        CHECK(host.slots[local].local_rank == static_cast<int>(local));
        CHECK(host.slots[local].cross_rank == crossing[local]++);
      }
    }
    CHECK(rank == wanted);
    for (const HostPlan& host : plan.hosts) {
      for (const Slot& slot : host.slots) {
        CHECK(slot.cross_size == crossing[static_cast<std::size_t>(slot.local_rank)]);
      }
    }
  }
}

TEST_CASE("Bare hosts get one slot, a given number, or their GPUs") {
  JobSpec spec;
  spec.hosts = parse_host_list("a,b:3", "-H").value();
  CHECK(format_host_list(settle_named_slots(spec)) == "a:1,b:3");
  spec.slots_per_host = 8;
  CHECK(format_host_list(settle_named_slots(spec)) == "a:8,b:3");
  spec.slots_per_host.reset();
  spec.slots_per_host_auto = true;
  const auto open = settle_named_slots(spec);
  CHECK(has_open_slots(open));
  CHECK(format_host_list(settle_gpu_slots(open, {4, 9}, "").value()) == "a:4,b:3");
  CHECK(format_host_list(settle_gpu_slots(open, {4, 9}, "auto").value()) == "a:4,b:3");
  CHECK(format_host_list(settle_gpu_slots(open, {5, 9}, "2").value()) == "a:2,b:3");
  CHECK(format_host_list(settle_gpu_slots(open, {1, 9}, "2").value()) == "a:1,b:3");
  CHECK(settle_gpu_slots(open, {0, 9}, "").error().message.find("host a has no GPU") !=
        std::string::npos);
}

TEST_CASE("Without hosts the job runs on this machine") {
  JobSpec spec;
  spec.num_proc = 3;
  CHECK(settle_named_slots(spec) == std::vector<Host>{{"localhost", "", 3}});
  spec.num_proc = 65'536;
  CHECK(plan_job(spec, settle_named_slots(spec)));
  spec.num_proc = 65'537;
  const auto plan = plan_job(spec, settle_named_slots(spec));
  REQUIRE_FALSE(plan);
  CHECK(plan.error().code == hora::ErrorCode::kUsage);
  CHECK(plan.error().message.find("65537 ranks are too many for one host (localhost)") == 0);
}

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
      "\xEF\xBB\xBF# placed by hand\n"
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
