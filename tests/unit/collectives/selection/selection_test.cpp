// SPDX-License-Identifier: Apache-2.0
#include <map>

#include "collectives/runtime/fusion_plan.h"
#include "collectives/runtime/launched_world.h"
#include "collectives/runtime/rank_info.h"
#include "collectives/runtime/settings.h"
#include "collectives/selection/select.h"
#include "tests/support/catch.h"

using namespace hora::collectives;

namespace {

SelectionRow row(const std::string& backend, int score) {
  SelectionRow result;
  result.backend = backend;
  result.capability.operation = HORA_ALLREDUCE;
  result.capability.score = score;
  return result;
}

SelectionQuery query(std::int64_t bytes = 100) {
  SelectionQuery result;
  result.operation = HORA_ALLREDUCE;
  result.dtype = HORA_FLOAT32;
  result.bytes = bytes;
  result.set_size = 4;
  return result;
}

Response reduce(std::int64_t count, hora_dtype dtype = HORA_FLOAT32) {
  Response response;
  response.agreed.action = Action::kAllreduce;
  response.agreed.dtype = dtype;
  response.agreed.shape = {count};
  return response;
}

hora::Result<Settings> settings_of(
    const std::map<std::string, std::string, std::less<>>& variables) {
  return parse_settings([&variables](std::string_view name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
}

}  // namespace

TEST_CASE("selection: the best score that fits") {
  SelectionTable table{row("slow", 1), row("fast", 9), row("other", 9)};
  CHECK(select_backend(table, query()) == "fast");
  table[1].capability.most_bytes = 50;
  CHECK(select_backend(table, query()) == "other");
  table[2].capability.across_hosts = 0;
  CHECK(select_backend(table, query()) == "slow");
  table[0].capability.dtypes = 1u << HORA_INT8;
  CHECK(select_backend(table, query()) == std::nullopt);
  SelectionQuery gpu = query();
  gpu.gpu = true;
  CHECK(select_backend({row("cpu", 1)}, gpu) == std::nullopt);
  table[0] = row("alone", 1000);
  table[0].capability.alone = 1;
  CHECK(select_backend(table, query()) == std::nullopt);
}

TEST_CASE("selection: only what every rank can use, in rank 0's order") {
  using Lists = std::vector<std::vector<std::string>>;
  CHECK(agree_on_backends(Lists{{"self", "shm", "gloo"}, {"gloo", "self"}}, "", {"self"}) ==
        std::vector<std::string>{"self", "gloo"});
  CHECK(agree_on_backends(Lists{{"self", "shm", "gloo"}}, " SHM, mpi", {"self"}) ==
        std::vector<std::string>{"self", "shm"});
  CHECK(agree_on_backends(Lists{}, "", {"self"}).empty());
  CHECK(unknown_backend(" SHM,-mpi", {"shm", "mpi"}).empty());
  CHECK(unknown_backend("shm,-mpl", {"shm", "mpi"}) == "mpl");
}

namespace {

std::vector<std::vector<std::size_t>> fused(const std::vector<Response>& responses,
                                            std::int64_t threshold) {
  std::vector<const Response*> list;
  for (const Response& response : responses) list.push_back(&response);
  return plan_fusion(list, [=](std::int32_t) { return threshold; });
}

}  // namespace

TEST_CASE("fusion: each process set has a threshold of its own") {
  Response response;
  response.agreed.action = Action::kAllreduce;
  response.agreed.dtype = HORA_FLOAT32;
  response.agreed.shape = {1};
  Response other = response;
  other.agreed.process_set = 1;
  const Response* const list[] = {&response, &other, &response, &other};
  const auto plan = plan_fusion(list, [](std::int32_t set) { return set == 0 ? 1000 : 0; });
  CHECK(plan == std::vector<std::vector<std::size_t>>{{0, 2}, {1}, {3}});
}

TEST_CASE("fusion: like with like, up to the threshold, nothing past a fence") {
  using Plan = std::vector<std::vector<std::size_t>>;
  CHECK(fused({reduce(10), reduce(10), reduce(10)}, 80) == Plan{{0, 1}, {2}});
  CHECK(fused({reduce(10), reduce(10, HORA_INT32), reduce(10)}, 1000) == Plan{{0, 2}, {1}});
  CHECK(fused({reduce(10), reduce(10)}, 0) == Plan{{0}, {1}});
  CHECK(fused({reduce(1000), reduce(1), reduce(2)}, 80) == Plan{{0}, {1, 2}});
  Response barrier;
  CHECK(fused({reduce(1), barrier, reduce(1)}, 1000) == Plan{{0}, {1}, {2}});
  Response wrong = reduce(1);
  wrong.status = HORA_MISMATCH;
  CHECK(fused({reduce(1), wrong, reduce(1)}, 1000) == Plan{{0, 2}, {1}});
  Response scaled = reduce(1);
  scaled.agreed.postscale = 2;
  Response joined = reduce(1);
  joined.joined = {1};
  CHECK(fused({reduce(1), scaled, joined, reduce(1)}, 1000) == Plan{{0, 3}, {1}, {2}});
}

TEST_CASE("fusion: groups apart share steps among their members only") {
  using Plan = std::vector<std::vector<std::size_t>>;
  const auto of_group = [](const char* group) {
    Response response = reduce(1);
    response.agreed.group = group;
    return response;
  };
  const Response list[] = {of_group("a"), reduce(1),     of_group("b"), of_group("a"),
                           reduce(1),     of_group("b"), of_group("c")};
  std::vector<const Response*> all;
  for (const Response& each : list) all.push_back(&each);
  const auto threshold = [](std::int32_t) { return std::int64_t{1000}; };
  CHECK(plan_fusion(all, threshold, Groups::kApart) == Plan{{0, 3}, {1, 4}, {2, 5}, {6}});
  CHECK(plan_fusion(all, threshold, Groups::kMixed) == Plan{{0, 1, 2, 3, 4, 5, 6}});
}

// Each rank plans what it receives: rank 0 everything, the others what their sets do.
TEST_CASE("fusion: a fence of a set is none for ranks that do not see it") {
  using Plan = std::vector<std::vector<std::size_t>>;
  const Response in_world = reduce(1);
  Response in_set = reduce(1);
  in_set.agreed.process_set = 1;
  Response barrier;
  barrier.agreed.process_set = 1;
  CHECK(fused({in_world, barrier, in_world}, 1000) == Plan{{0, 2}, {1}});
  CHECK(fused({in_set, barrier, in_set}, 1000) == Plan{{0}, {1}, {2}});
  barrier.agreed.process_set = 0;
  CHECK(fused({in_set, in_world, barrier, in_world, in_set}, 1000) ==
        Plan{{0}, {1}, {2}, {3}, {4}});
}

TEST_CASE("settings: a world of one without variables, a place with them") {
  const auto alone = settings_of({});
  REQUIRE(alone);
  CHECK(alone->size == 1);
  const auto placed = settings_of({{"HOROVOD_RANK", "3"},
                                   {"HOROVOD_SIZE", "4"},
                                   {"HOROVOD_LOCAL_RANK", "1"},
                                   {"HOROVOD_LOCAL_SIZE", "2"},
                                   {"HOROVOD_CROSS_RANK", "1"},
                                   {"HOROVOD_CROSS_SIZE", "2"},
                                   {"HOROVOD_GLOO_RENDEZVOUS_ADDR", "10.0.0.1"},
                                   {"HOROVOD_GLOO_RENDEZVOUS_PORT", "7000"},
                                   {"HOROVOD_GLOO_TIMEOUT_SECONDS", "7"}});
  REQUIRE(placed);
  CHECK(placed->rank == 3);
  CHECK(placed->cross_size == 2);
  CHECK(placed->start_timeout == std::chrono::seconds(7));
}

TEST_CASE("settings: what is wrong is named") {
  const auto error = [](auto variables) {
    const auto settings = settings_of(variables);
    REQUIRE_FALSE(settings);
    return settings.error().message;
  };
  using Map = std::map<std::string, std::string, std::less<>>;
  CHECK_THAT(error(Map{{"HOROVOD_RANK", "two"}}), Contains("HOROVOD_RANK=two: expected a whole"));
  CHECK_THAT(error(Map{{"HOROVOD_SIZE", "2"}}),
             Contains("HOROVOD_GLOO_RENDEZVOUS_ADDR is not set"));
  const auto in_a_job = [&error](Map variables) {
    variables.emplace("HOROVOD_GLOO_RENDEZVOUS_ADDR", "127.0.0.1");
    return error(std::move(variables));
  };
  CHECK_THAT(in_a_job({{"HOROVOD_SIZE", "2"}}),
             Contains("HOROVOD_SIZE=2 but HOROVOD_RANK is not set: it is a number from 0 to 1"));
  CHECK_THAT(in_a_job({{"HOROVOD_RANK", "2"}, {"HOROVOD_SIZE", "2"}}),
             Contains("HOROVOD_RANK=2 is not below HOROVOD_SIZE=2"));
  CHECK_THAT(in_a_job({{"HOROVOD_RANK", "1"}}), Contains("HOROVOD_RANK=1 but HOROVOD_SIZE is not"));
  const Map second_of_two{{"HOROVOD_RANK", "1"}, {"HOROVOD_SIZE", "2"}};
  const auto with = [&](const char* name, const char* value) {
    Map variables = second_of_two;
    variables.emplace(name, value);
    return in_a_job(std::move(variables));
  };
  CHECK_THAT(with("HOROVOD_LOCAL_SIZE", "2"), Contains("but HOROVOD_LOCAL_RANK is not set"));
  CHECK_THAT(with("HOROVOD_CROSS_RANK", "1"), Contains("but HOROVOD_CROSS_SIZE is not set"));
  CHECK_THAT(with("HOROVOD_CROSS_SIZE", "2"), Contains("but HOROVOD_CROSS_RANK is not set"));
  CHECK_THAT(error(Map{{"HOROVOD_GLOO_TIMEOUT_SECONDS", "1e3"}}), Contains("whole number"));
  for (const char* list : {"0-3", "1,", ",1", "-1", "1 2", "99999999"}) {
    CHECK_THAT(error(Map{{"HOROVOD_THREAD_AFFINITY", list}}), Contains("separated by commas"));
  }
}

TEST_CASE("settings: a core per local rank, groups, time in the log") {
  const auto nothing = settings_of({});
  REQUIRE(nothing);
  CHECK((nothing->thread_affinity.empty() && nothing->group_fusion && !nothing->log_hide_time));
  const auto given = settings_of({{"HOROVOD_THREAD_AFFINITY", "0,8,16"},
                                  {"HOROVOD_DISABLE_GROUP_FUSION", "1"},
                                  {"HOROVOD_LOG_HIDE_TIME", "1"}});
  REQUIRE(given);
  CHECK(given->thread_affinity == std::vector<int>{0, 8, 16});
  CHECK((!given->group_fusion && given->log_hide_time));
}

TEST_CASE("settings: what the user gives is not tuned") {
  const auto nothing = settings_of({});
  REQUIRE(nothing);
  CHECK((nothing->tunable.fusion && nothing->tunable.cycle_time && nothing->tunable.hierarchical &&
         nothing->tunable.shm && !nothing->autotune));
  const auto given = settings_of({{"HOROVOD_AUTOTUNE", "1"},
                                  {"HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", "0.25"},
                                  {"HOROVOD_FUSION_THRESHOLD", "0"},
                                  {"HOROVOD_CYCLE_TIME", "2.5"},
                                  {"HOROVOD_HIERARCHICAL_ALLREDUCE", "0"},
                                  {"HORA_SHM_PART_BYTES", "8192"}});
  REQUIRE(given);
  CHECK(given->autotune);
  CHECK(given->autotune_options.most_noise == 0.25);
  CHECK(given->parameters.cycle_time_us == 2500);
  CHECK(given->parameters.fusion_threshold_bytes == 0);
  CHECK(!given->tunable.any());
  const auto wrong = settings_of({{"HOROVOD_CYCLE_TIME", "fast"}});
  REQUIRE(!wrong);
  CHECK(wrong.error().message == "HOROVOD_CYCLE_TIME=fast: expected a number from 0 to 1e+06");
}

TEST_CASE("settings: the error for a value that is not a number says what is expected") {
  const auto error_of = [](const char* name, const char* value) {
    const auto settings = settings_of({{name, value}});
    REQUIRE(!settings);
    return settings.error().message;
  };
  CHECK(error_of("HOROVOD_AUTOTUNE", "true") == "HOROVOD_AUTOTUNE=true: expected 0 or 1");
  CHECK(error_of("HOROVOD_HIERARCHICAL_ALLREDUCE", "True") ==
        "HOROVOD_HIERARCHICAL_ALLREDUCE=True: expected 0 or 1");
  CHECK(error_of("HOROVOD_FUSION_THRESHOLD", "64MB") ==
        "HOROVOD_FUSION_THRESHOLD=64MB: expected a whole number of at least 0");
  CHECK(error_of("HOROVOD_CACHE_CAPACITY", "-1") ==
        "HOROVOD_CACHE_CAPACITY=-1: expected a whole number from 0 to 16777216");
  CHECK(error_of("HORA_SHM_BYTES", "1G") ==
        "HORA_SHM_BYTES=1G: expected a whole number of at least 0");
}

TEST_CASE("settings: a stall is reported after a second or more") {
  CHECK(settings_of({{"HOROVOD_STALL_CHECK_TIME_SECONDS", "0"}})->stall_warning.count() == 1);
  CHECK(settings_of({{"HOROVOD_STALL_CHECK_TIME_SECONDS", "5"}})->stall_warning.count() == 5);
}

TEST_CASE("settings: a choice that is not made is the runtime's") {
  CHECK(settings_of({})->hierarchical_allreduce == Choice::kAuto);
  CHECK(settings_of({{"HOROVOD_HIERARCHICAL_ALLREDUCE", ""}})->hierarchical_allreduce ==
        Choice::kAuto);
  CHECK(settings_of({{"HOROVOD_HIERARCHICAL_ALLREDUCE", "2"}})->hierarchical_allreduce ==
        Choice::kOn);
  CHECK(settings_of({{"HOROVOD_HIERARCHICAL_ALLREDUCE", "0"}})->hierarchical_allreduce ==
        Choice::kOff);
}

TEST_CASE("settings: who moves tensors in host memory") {
  using Map = std::map<std::string, std::string, std::less<>>;
  const auto backends = [](const Map& variables) {
    const auto settings = settings_of(variables);
    REQUIRE(settings);
    return settings->backends;
  };
  CHECK(backends(Map{}) == "");
  CHECK(backends(Map{{"HOROVOD_CPU_OPERATIONS", "MPI"}}) == "mpi,nccl");
  CHECK(backends(Map{{"HOROVOD_CPU_OPERATIONS", "gloo"}}) == "-mpi");
  CHECK(backends(Map{{"HOROVOD_CPU_OPERATIONS", "gloo"}, {"HORA_BACKENDS", "shm"}}) == "shm");
  // What oneCCL cannot do is for others.
  CHECK(backends(Map{{"HOROVOD_CPU_OPERATIONS", "CCL"}}) == "-mpi");
  const auto unknown = settings_of(Map{{"HOROVOD_CPU_OPERATIONS", "ddl"}});
  REQUIRE_FALSE(unknown);
  CHECK_THAT(unknown.error().message,
             Contains("HOROVOD_CPU_OPERATIONS=ddl: expected mpi, gloo or ccl"));

  const std::vector<std::vector<std::string>> all(2, {"self", "shm", "gloo", "mpi"});
  using Names = std::vector<std::string>;
  CHECK(agree_on_backends(all, "-mpi", {"self"}) == Names{"self", "shm", "gloo"});
  CHECK(agree_on_backends(all, "mpi,nccl", {"self"}) == Names{"self", "mpi"});
  CHECK(agree_on_backends(all, "shm, mpi, -shm", {"self"}) == Names{"self", "mpi"});
}

TEST_CASE("other launchers are known by what they set") {
  using Map = std::map<std::string, std::string, std::less<>>;
  const auto launcher = [](const Map& variables) {
    return find_other_launcher([&](std::string_view name) -> std::optional<std::string> {
      const auto found = variables.find(name);
      if (found == variables.end()) return std::nullopt;
      return found->second;
    });
  };
  CHECK(launcher({}) == "");
  CHECK(launcher({{"OMPI_COMM_WORLD_SIZE", "4"}}) == "OMPI_COMM_WORLD_SIZE");
  CHECK(launcher({{"OMPI_COMM_WORLD_SIZE", "1"}}) == "");
  CHECK(launcher({{"PMI_SIZE", "2"}}) == "PMI_SIZE");
  CHECK(launcher({{"PMIX_NAMESPACE", "x"}}) == "");
  CHECK(launcher({{"PMIX_NAMESPACE", "x"}, {"SLURM_STEP_NUM_TASKS", "2"}}) == "PMIX_NAMESPACE");
  CHECK(launcher({{"PMIX_NAMESPACE", "x"}, {"JSM_NAMESPACE_SIZE", "2"}}) == "PMIX_NAMESPACE");
  // mpirun started a torchrun on each host.
  CHECK(launcher({{"OMPI_COMM_WORLD_SIZE", "2"},
                  {"TORCHELASTIC_RUN_ID", "x"},
                  {"RANK", "3"},
                  {"WORLD_SIZE", "4"}}) == "");
  CHECK(launcher({{"HOROVOD_CONTROLLER", "mpi"}}) == "HOROVOD_CONTROLLER");
  CHECK(launcher({{"HOROVOD_CONTROLLER", "gloo"}}) == "");
}

TEST_CASE("rank_infos: survive; hosts are numbered; process sets must agree") {
  RankInfo rank_info;
  rank_info.hostname = "node1";
  rank_info.machine = "m";
  rank_info.local_rank = 1;
  rank_info.local_size = 2;
  rank_info.backends = {"self", "gloo"};
  rank_info.process_sets = {{0, 1}, {1}};
  const auto decoded = decode_rank_info(encode_rank_info(rank_info));
  REQUIRE(decoded);
  CHECK(*decoded == rank_info);
  CHECK_FALSE(decode_rank_info("\x05"));

  std::vector<RankInfo> all(3, rank_info);
  all[1].machine = "n";
  CHECK(number_hosts(all) == std::vector<std::int32_t>{0, 1, 0});
  CHECK(check_process_sets(all).empty());
  all[2].process_sets = {{0, 1}};
  CHECK(check_process_sets(all) ==
        "the process sets given to init differ: rank 0 has [0, 1][1], rank 2 has [0, 1]");
  for (const auto& bad : std::vector<std::vector<std::vector<std::int32_t>>>{
           {{}}, {{0, 0}}, {{3}}, {{-1}}, {{0, 1}, {1, 0}}}) {
    for (RankInfo& each : all) each.process_sets = bad;
    CHECK_FALSE(check_process_sets(all).empty());
  }
}
