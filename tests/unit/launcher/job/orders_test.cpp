// SPDX-License-Identifier: Apache-2.0
#include "launcher/job/orders.h"

#include <map>

#include "tests/support/catch.h"

namespace hora::launcher {
namespace {

using Values = std::map<std::string, std::string>;

// Two ranks of each program, one host.
HostOrder order_of(const JobSpec& spec, const EnvironmentList& launcher = {}) {
  const auto plan = plan_job({Host{"a", "", 4}}, spec.num_proc);
  REQUIRE(plan);
  HostRoute route;
  route.interfaces = {"eth0"};
  return make_orders(spec, *plan, {route}, {true}, {}, launcher).front();
}

// As the agent merges them.
Values environment_of(const HostOrder& order, std::size_t rank) {
  Values values(order.environment.begin(), order.environment.end());
  for (const auto& [name, value] : order.ranks[rank].environment) values[name] = value;
  return values;
}

JobSpec two_programs() {
  JobSpec spec;
  spec.num_proc = 3;
  spec.command = {"./a"};
  spec.programs = {{{"./a"}, 2, {}}, {{"./b"}, 1, {}}};
  return spec;
}

TEST_CASE("Orders: -x means for one of several programs what it means for one alone") {
  JobSpec spec = two_programs();
  const std::vector<EnvironmentVariable> given{{"A", "own"},
                                               {"NCCL_SOCKET_IFNAME", "ib0"},
                                               {"HOROVOD_GLOO_IFACE", "stray"},
                                               {"HOROVOD_CYCLE_TIME", "7"}};
  spec.programs[1].variables = given;
  spec.knobs = {{"HOROVOD_CYCLE_TIME", "2"}};
  const EnvironmentList launcher{{"A", "all"}, {"B", "all"}};
  const HostOrder order = order_of(spec, launcher);
  CHECK(order.argv == spec.command);
  CHECK(order.more_programs == std::vector<ProgramOrder>{{2, {"./b"}}});

  JobSpec alone = two_programs();
  alone.programs.clear();
  alone.knobs = spec.knobs;
  CHECK(environment_of(order, 0) == environment_of(order_of(alone, launcher), 0));
  alone.variables = given;
  CHECK(environment_of(order, 2) == environment_of(order_of(alone, launcher), 2));
  CHECK(environment_of(order, 2)["A"] == "own");
  CHECK(environment_of(order, 2)["NCCL_SOCKET_IFNAME"] == "ib0");
  CHECK(environment_of(order, 2)["HOROVOD_CYCLE_TIME"] == "2");
}

TEST_CASE("Orders: a vendor's libraries that were sent replace what a program has of them") {
  JobSpec spec = two_programs();
  spec.programs[0].variables = {{"OPAL_PREFIX", "/opt/openmpi"}};
  HostOrder order = order_of(spec, {{"OPAL_PREFIX", "/usr"}});
  use_vendor_paths(order, {{"OPAL_PREFIX", "@bundle@/openmpi"}});
  CHECK(environment_of(order, 0).count("OPAL_PREFIX") == 0);
}

TEST_CASE("Orders: a Python environment that was sent replaces one that is active here or there") {
  JobSpec spec = two_programs();
  spec.programs[0].variables = {{"VIRTUAL_ENV", "/home/me/other"}};
  HostOrder order = order_of(spec, {{"CONDA_PREFIX", "/opt/conda"},
                                    {"PYTHONHOME", "/opt/python"},
                                    {"PYTHONNOUSERSITE", "1"},
                                    {"PYTHONPATH", "/home/me/lib"}});
  order.prepend_paths = {{"PATH", "@bundle@/bin"}};
  use_environment(order, {{"PATH", "@environment@/bin"}, {"VIRTUAL_ENV", "@environment@"}});
  const auto values = environment_of(order, 0);
  for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONHOME"}) {
    CAPTURE(name);
    CHECK(values.count(name) == 0);
  }
  // The user's own.
  CHECK(values.count("PYTHONNOUSERSITE") == 1);
  CHECK(values.count("PYTHONPATH") == 1);
  CHECK(order.prepend_paths.front().second == "@environment@/bin");
  CHECK(order.prepend_paths.back().second == "@bundle@/bin");
}

}  // namespace
}  // namespace hora::launcher
