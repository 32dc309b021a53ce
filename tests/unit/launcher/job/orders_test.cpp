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

// The second of two hosts.
HostOrder place_order(const std::vector<HostRoute>& routes) {
  const auto plan = plan_job({Host{"a", "", 2}, Host{"b", "", 2}}, 4);
  REQUIRE(plan);
  return make_place_order(*plan, 1, routes, {"job", "token", "tls", 1234, 5678});
}

std::vector<HostRoute> two_routes() {
  std::vector<HostRoute> routes(2);
  routes[0].address = "10.0.0.1";
  routes[1].address = "10.0.0.2";
  routes[1].rendezvous_address = "10.0.0.1";
  routes[1].interfaces = {"eth0", "ib0"};
  routes[1].is_prefix = true;
  return routes;
}

Result<OrderedPlace> read_place(const HostOrder& order, int slots = 2) {
  return read_place_order(order, Host{"node 0", "", {}}, Host{"own", "", {}}, slots);
}

TEST_CASE("Orders: a host with a command of its own gets its place, and nothing else") {
  const HostOrder order = place_order(two_routes());
  CHECK(order.argv.empty());
  CHECK(order.own_variables.empty());
  CHECK(order.prepend_paths.empty());
  const auto place = read_place(order);
  REQUIRE(place);
  CHECK(place->plan.world_size == 4);
  REQUIRE(place->plan.hosts.size() == 2);
  CHECK(place->plan.hosts[0].slots.empty());
  const HostPlan& own = place->plan.hosts[1];
  CHECK(own.host.name == "own");
  CHECK(own.index == 1);
  CHECK(own.slots == std::vector<Slot>{{2, 0, 1, 2}, {3, 1, 1, 2}});
  CHECK(place->routes[0].address == "10.0.0.1");
  CHECK(place->routes[1].rendezvous_address == "10.0.0.1");
  CHECK(place->routes[1].interfaces == std::vector<std::string>{"eth0", "ib0"});
  CHECK(place->routes[1].is_prefix);
  CHECK(place->identity.job_id == "job");
  CHECK(place->identity.token == "token");
  CHECK(place->identity.tls_fingerprint == "tls");
  CHECK(place->identity.rendezvous_port == 1234);
  CHECK(place->identity.master_port == 5678);
}

TEST_CASE("Orders: a command, a folder and other variables in a place are not read") {
  HostOrder order = place_order(two_routes());
  order.argv = {"sh", "-c", "id"};
  order.working_directory = "/root";
  order.environment.emplace_back("LD_PRELOAD", "/tmp/x.so");
  order.ranks[0].environment.emplace_back("PYTHONPATH", "/tmp");
  const auto place = read_place(order);
  REQUIRE(place);
  JobSpec spec;
  spec.command = {"train"};
  const HostOrder own =
      make_order(spec, place->plan, 1, place->routes, true, place->identity, {{"A", "own"}});
  CHECK(own.argv == spec.command);
  CHECK(own.working_directory.empty());
  const Values values = environment_of(own, 0);
  CHECK(values.count("LD_PRELOAD") + values.count("PYTHONPATH") == 0);
  CHECK(values.at("A") == "own");
  CHECK(values.at("HOROVOD_RANK") == "2");
  CHECK(values.at("HOROVOD_LOCAL_SIZE") == "2");
  CHECK(values.at("MASTER_ADDR") == "10.0.0.1");
}

TEST_CASE("Orders: a place that is not one is refused") {
  const HostOrder good = place_order(two_routes());
  CHECK(read_place(good, 1).error().message ==
        "it has 2 ranks for this node, whose own command has 1 slot");
  for (const auto& [name, value] : EnvironmentList{{"HORA_JOB_ID", "a b"},
                                                   {"HORA_RENDEZVOUS_TOKEN", "a/b"},
                                                   {"HORA_RENDEZVOUS_TLS", "$(id)"},
                                                   {"NCCL_SOCKET_IFNAME", "e;th0"},
                                                   {"MASTER_ADDR", "elsewhere.example"},
                                                   {"HOROVOD_GLOO_RENDEZVOUS_ADDR", ""},
                                                   {"HOROVOD_GLOO_RENDEZVOUS_PORT", "65536"},
                                                   {"MASTER_PORT", "x"}}) {
    HostOrder order = good;
    order.environment = with_variables(order.environment, {{name, value}});
    INFO(name);
    CHECK(read_place(order).error().message == "the order's " + name + " cannot be used");
  }
  for (const auto& [name, value] : EnvironmentList{{"HOROVOD_RANK", "4"},
                                                   {"HOROVOD_RANK", "1"},
                                                   {"HOROVOD_SIZE", "0"},
                                                   {"HOROVOD_SIZE", "1000001"},
                                                   {"HOROVOD_CROSS_RANK", "2"},
                                                   {"GROUP_RANK", "-1"}}) {
    HostOrder order = good;
    order.ranks[0].environment = with_variables(order.ranks[0].environment, {{name, value}});
    INFO(name);
    CHECK_FALSE(read_place(order));
  }
  HostOrder twice = good;
  twice.ranks[1] = twice.ranks[0];
  CHECK_FALSE(read_place(twice));
  HostOrder none = good;
  none.ranks.clear();
  CHECK_FALSE(read_place(none));
}

}  // namespace
}  // namespace hora::launcher
