// SPDX-License-Identifier: Apache-2.0
#include "launcher/plan/plan.h"

#include <random>

#include "tests/support/catch.h"

namespace hora::launcher {
namespace {

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
  CHECK(format_host_list(settle_gpu_slots(open, {4, 9}).value()) == "a:4,b:3");
  CHECK(settle_gpu_slots(open, {0, 9}).error().message.find("host a has no GPU") !=
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

}  // namespace
}  // namespace hora::launcher
