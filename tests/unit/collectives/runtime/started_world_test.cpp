// SPDX-License-Identifier: Apache-2.0
#include "collectives/runtime/started_world.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "collectives/runtime/rank_location.h"
#include "tests/support/catch.h"

namespace hora::collectives {
namespace {

using Map = std::map<std::string, std::string, std::less<>>;
using Ports = std::vector<std::uint16_t>;

std::optional<StartedWorld> world_of(const Map& variables) {
  return find_started_world([&](std::string_view name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
}

Map with(Map variables, const Map& more) {
  for (const auto& [name, value] : more) variables[name] = value;
  return variables;
}

const Map kStep = {{"SLURM_JOB_ID", "17"},        {"SLURM_STEP_ID", "3"},
                   {"SLURM_STEP_NUM_TASKS", "8"}, {"SLURM_STEP_NUM_NODES", "4"},
                   {"SLURM_PROCID", "5"},         {"SLURM_STEP_NODELIST", "sn[1-4]"}};

const Map kTorchRun = {{"TORCHELASTIC_RUN_ID", "x"}, {"RANK", "1"},
                       {"WORLD_SIZE", "4"},          {"LOCAL_WORLD_SIZE", "2"},
                       {"MASTER_ADDR", "node"},      {"MASTER_PORT", "29500"}};

TEST_CASE("a single process is not in a world of another launcher") {
  CHECK_FALSE(world_of({}));
  // A batch script of Slurm: numbers of the allocation, but no step.
  CHECK_FALSE(world_of({{"SLURM_JOB_ID", "17"}, {"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "0"}}));
  CHECK_FALSE(world_of(with(kStep, {{"SLURM_STEP_NUM_TASKS", "1"}})));
  // Variables for programs to come.
  CHECK_FALSE(world_of({{"WORLD_SIZE", "8"}, {"MASTER_ADDR", "a"}}));
  CHECK_FALSE(world_of({{"WORLD_SIZE", "8"}, {"RANK", "0"}}));
  // One process of torchrun's, which srun started on each of four nodes.
  CHECK_FALSE(world_of(with(kStep, with(kTorchRun, {{"WORLD_SIZE", "1"}, {"RANK", "0"}}))));
}

TEST_CASE("srun: the step's numbers, and its first node") {
  const auto world = world_of(kStep);
  REQUIRE(world);
  CHECK(world->rank == 5);
  CHECK(world->size == 8);
  CHECK(world->first_host == "sn1");
  CHECK(world->described() ==
        "SLURM_STEP_NUM_TASKS=8 says that srun started this process as rank 5 of 8");
  CHECK(world_of(with(kStep, {{"SLURM_STEP_NUM_NODES", "1"}}))->first_host == "127.0.0.1");
  CHECK(world_of(with(kStep, {{"MASTER_ADDR", "10.0.0.1"}}))->first_host == "10.0.0.1");
}

TEST_CASE("torchrun is inside of what started it") {
  const auto world = world_of(with(kStep, kTorchRun));
  REQUIRE(world);
  CHECK(world->launcher == "torchrun");
  CHECK(world->rank == 1);
  CHECK(world->size == 4);
  CHECK(world->first_host == "node");
  CHECK(world_of(with(kTorchRun, {{"LOCAL_WORLD_SIZE", "4"}}))->first_host == "127.0.0.1");
}

TEST_CASE("a world without a known first host is found as well") {
  const auto world = world_of({{"JSM_NAMESPACE_SIZE", "12"}, {"JSM_NAMESPACE_RANK", "0"}});
  REQUIRE(world);
  CHECK(world->launcher == "jsrun");
  CHECK(world->first_host.empty());
  CHECK(world_of({{"OMPI_COMM_WORLD_SIZE", "2"},
                  {"OMPI_COMM_WORLD_RANK", "1"},
                  {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}})
            ->first_host == "127.0.0.1");
  // PyTorchJob and scripts: what torch.distributed needs is enough.
  const auto plain =
      world_of({{"WORLD_SIZE", "2"}, {"RANK", "1"}, {"MASTER_ADDR", "job-master-0"}});
  REQUIRE(plain);
  CHECK(plain->first_host == "job-master-0");
}

TEST_CASE("the first host of Slurm's lists") {
  CHECK(first_of_nodelist("sn1") == "sn1");
  CHECK(first_of_nodelist("sn1,sn2") == "sn1");
  CHECK(first_of_nodelist("sn[03-07,9],login") == "sn03");
  CHECK(first_of_nodelist("sn[3,5]") == "sn3");
  CHECK(first_of_nodelist("r[1-2]n[07-9]-ib,x") == "r1n07-ib");
  CHECK(first_of_nodelist("") == "");
}

TEST_CASE("a world meets at ports of its own") {
  const auto here = world_of(kStep);
  const auto neighbour = world_of(with(kStep, {{"SLURM_PROCID", "0"}}));
  const auto other = world_of(with(kStep, {{"SLURM_STEP_ID", "4"}}));
  CHECK(meeting_ports(*here) == meeting_ports(*neighbour));
  CHECK(meeting_token(*here) == meeting_token(*neighbour));
  CHECK(meeting_ports(*here) != meeting_ports(*other));
  CHECK(meeting_token(*here) != meeting_token(*other));
  const Ports ports = meeting_ports(*here);
  CHECK(std::set<std::uint16_t>(ports.begin(), ports.end()).size() == ports.size());
  CHECK(std::all_of(ports.begin(), ports.end(),
                    [](std::uint16_t port) { return port >= 20'000 && port < 30'000; }));
  const auto reserved = world_of(with(kStep, {{"SLURM_STEP_RESV_PORTS", "12000-12002,12010"}}));
  CHECK(meeting_ports(*reserved) == Ports{12000, 12001, 12002, 12010});
  CHECK(meeting_ports(*world_of(with(kStep, {{"SLURM_STEP_RESV_PORTS", "65535"}}))) ==
        Ports{65535});
}

TEST_CASE("places follow from who shares a machine") {
  const std::vector<std::string> machines = {"a", "b", "a", "b", "a"};
  const LauncherPlace last = place_among(machines, 4);
  CHECK(last.rank == 4);
  CHECK(last.size == 5);
  CHECK(last.local_rank == 2);
  CHECK(last.local_size == 3);
  CHECK(last.cross_rank == 0);
  CHECK(last.cross_size == 1);
  const LauncherPlace second = place_among(machines, 1);
  CHECK(second.local_rank == 0);
  CHECK(second.cross_rank == 1);
  CHECK(second.cross_size == 2);
}

}  // namespace
}  // namespace hora::collectives
