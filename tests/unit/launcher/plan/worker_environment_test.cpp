// SPDX-License-Identifier: Apache-2.0
#include "launcher/plan/worker_environment.h"

#include <algorithm>

#include "tests/support/catch.h"

namespace hora::launcher {
namespace {

std::string value_of(const EnvironmentList& list, std::string_view name) {
  std::string found = "unset";
  int times = 0;
  for (const auto& [key, value] : list) {
    if (key != name) continue;
    found = value;
    ++times;
  }
  CHECK(times <= 1);
  return found;
}

EnvironmentList launcher_environment() {
  return {{"PATH", "/opt/venv/bin:/usr/bin"},
          {"VIRTUAL_ENV", "/opt/venv"},
          {"CONDA_PREFIX", "/opt/conda"},
          {"HOME", "/home/me"},
          {"SSH_AUTH_SOCK", "/tmp/agent"},
          {"CUDA_VISIBLE_DEVICES", "0"},
          {"HOROVOD_RANK", "7"},
          {"WORLD_SIZE", "9"},
          {"MASTER_ADDR", "elsewhere"},
          {"HORA_RENDEZVOUS_TOKEN", "secret"},
          {"_HOROVOD_SECRET_KEY", "secret"},
          {"OMPI_COMM_WORLD_RANK", "0"},
          {"PMIX_RANK", "0"},
          {"BASH_FUNC_module%%", "() {  eval; }"},
          {"HOROVOD_CYCLE_TIME", "5"},
          {"OMP_NUM_THREADS", "4"},
          {"my.dotted-name", "odd"},
          {"BYTES", "a\nb'\"$() \xff\x01"}};
}

TEST_CASE("No launcher's place of this process in its job goes to a rank; settings do") {
  for (const char* name :
       {"MPI_LOCALRANKID", "MPI_LOCALNRANKS", "MV2_COMM_WORLD_LOCAL_SIZE", "FLUX_TASK_RANK",
        "PMI_SIZE", "PMI_HOSTNAME", "HYDI_CONTROL_FD", "OMPI_MCA_orte_hnp_uri", "OMPI_ARGV",
        "OMPI_MCA_orte_local_daemon_uri", "MPIR_CVAR_CH3_INTERFACE_HOSTNAME", "PMIX_NAMESPACE",
        "I_MPI_PIN_INFO", "HYDRA_BSTRAP_UPSTREAM_FD", "PRTE_LAUNCHED"}) {
    INFO(name);
    CHECK(travel_of(name) == Travel::kNowhere);
  }
  for (const char* name : {"PMIX_MCA_gds", "OMPI_MCA_pml", "OMPI_MCA_orte_base_help_aggregate",
                           "PRTE_MCA_rmaps_default_mapping_policy", "I_MPI_FABRICS", "PMI_DEBUG",
                           "MPIR_CVAR_CH4_NUM_VCIS", "HYDRA_IFACE", "FLUX_URI"}) {
    INFO(name);
    CHECK(travel_of(name) == Travel::kEverywhere);
  }
}

TEST_CASE("Variables that speak of a job or of this machine stay behind") {
  const JobSpec spec;
  const auto remote = forwarded_environment(launcher_environment(), spec, false);
  for (const std::string_view name :
       {"HOME", "SSH_AUTH_SOCK", "CUDA_VISIBLE_DEVICES", "HOROVOD_RANK", "WORLD_SIZE",
        "MASTER_ADDR", "HORA_RENDEZVOUS_TOKEN", "_HOROVOD_SECRET_KEY", "OMPI_COMM_WORLD_RANK",
        "PMIX_RANK", "BASH_FUNC_module%%"}) {
    INFO(name);
    CHECK(value_of(remote, name) == "unset");
  }
  for (const std::string_view name : {"PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "HOROVOD_CYCLE_TIME",
                                      "OMP_NUM_THREADS", "my.dotted-name", "BYTES"}) {
    INFO(name);
    CHECK(value_of(remote, name) == value_of(launcher_environment(), name));
  }
  const auto local = forwarded_environment(launcher_environment(), spec, true);
  CHECK(value_of(local, "HOME") == "/home/me");
  CHECK(value_of(local, "CUDA_VISIBLE_DEVICES") == "0");
  CHECK(value_of(local, "HOROVOD_RANK") == "unset");
  CHECK(value_of(local, "HORA_RENDEZVOUS_TOKEN") == "unset");
}

TEST_CASE("Names are matched whole, not by how they begin") {
  CHECK(travel_of("OLDPWD") == Travel::kThisMachine);
  CHECK(travel_of("OLDPWD_OF_MINE") == Travel::kEverywhere);
  CHECK(travel_of("HOMEBREW_PREFIX") == Travel::kEverywhere);
  CHECK(travel_of("_HOROVOD_SECRET_KEY_2") == Travel::kEverywhere);
  CHECK(travel_of("RANKING") == Travel::kEverywhere);
  CHECK(travel_of("HOROVOD_FUSION_THRESHOLD") == Travel::kEverywhere);
  CHECK(travel_of("SAVED_CUDA_VISIBLE_DEVICES") == Travel::kThisMachine);
  CHECK(travel_of("XDG_RUNTIME_DIR") == Travel::kThisMachine);
  CHECK(travel_of("HORA_RUN_KEY") == Travel::kEverywhere);
  CHECK(travel_of("HORA_ANY_SECRET") == Travel::kNowhere);
  CHECK(travel_of("HORA_LOG") == Travel::kEverywhere);
  for (const auto name : rendezvous::job_variable_names())
    CHECK(travel_of(name) == Travel::kNowhere);
}

TEST_CASE("Options win over the environment") {
  JobSpec spec;
  spec.knobs = {{"HOROVOD_CYCLE_TIME", "1"}, {"NCCL_IB_DISABLE", "1"}};
  const auto list = forwarded_environment(launcher_environment(), spec, false);
  CHECK(value_of(list, "HOROVOD_CYCLE_TIME") == "1");
  CHECK(value_of(list, "NCCL_IB_DISABLE") == "1");
}

TEST_CASE("Where software lies is an image's own to say") {
  JobSpec spec;
  spec.container = ContainerSpec{"python:3.12", "", ""};
  spec.variables = {{"CUDA_HOME", "/mine"}};
  const auto list = forwarded_environment(
      {{"PATH", "/bin"}, {"LD_LIBRARY_PATH", "/lib"}, {"CUDA_HOME", "/cuda"}, {"TOKEN", "a\nb"}},
      spec, true);
  CHECK(list == EnvironmentList{{"TOKEN", "a\nb"}, {"CUDA_HOME", "/mine"}});
}

TEST_CASE("An environment is split as getenv reads it") {
  const char* entries[] = {"A=1", "B=", "=odd", "no_equals", "A=2", "C=x=y", nullptr};
  CHECK(split_environment(entries) == EnvironmentList{{"A", "1"}, {"B", ""}, {"C", "x=y"}});
  CHECK(split_environment(nullptr).empty());
}

TEST_CASE("A large environment of odd names passes") {
  EnvironmentList list;
  for (int i = 0; i < 5000; ++i)
    list.emplace_back("v." + std::to_string(i), std::string(400, '\x80'));
  CHECK(forwarded_environment(list, JobSpec{}, false) == list);
}

TEST_CASE("The attempts of a job share the name that torchrun's programs read") {
  rendezvous::RendezvousAddress place;
  place.job_id = "of this attempt";
  place.master_address = "10.0.0.2";
  CHECK(value_of(host_variables(place, {}), "TORCHELASTIC_RUN_ID") == "of this attempt");
  const EnvironmentList forwarded{{"TORCHELASTIC_RUN_ID", "of all attempts"}};
  CHECK(value_of(host_variables(place, forwarded), "TORCHELASTIC_RUN_ID") == "unset");
}

TEST_CASE("A rank gets its place in the variables of every launcher") {
  const Plan plan = plan_job(parse_host_list("a:2,b:1", "-H").value(), 0).value();
  const auto list = rank_variables(plan, plan.hosts[1], plan.hosts[1].slots[0]);
  CHECK(value_of(list, "HOROVOD_RANK") == "2");
  CHECK(value_of(list, "HOROVOD_SIZE") == "3");
  CHECK(value_of(list, "HOROVOD_LOCAL_SIZE") == "1");
  CHECK(value_of(list, "HOROVOD_CROSS_RANK") == "1");
  CHECK(value_of(list, "HOROVOD_CROSS_SIZE") == "2");
  CHECK(value_of(list, "HOROVOD_HOSTNAME") == "b");
  CHECK(value_of(list, "RANK") == "2");
  CHECK(value_of(list, "WORLD_SIZE") == "3");
  CHECK(value_of(list, "LOCAL_RANK") == "0");
  CHECK(value_of(list, "LOCAL_WORLD_SIZE") == "1");
  CHECK(value_of(list, "GROUP_RANK") == "1");
}

TEST_CASE(
    "The network variables differ per host, and the user's choice for NCCL and PyTorch stands") {
  rendezvous::RendezvousAddress place;
  place.interfaces = {"ens3", "ens4"};
  place.rendezvous_address = "10.0.0.1";
  place.rendezvous_port = 7000;
  place.master_address = "10.0.0.2";
  place.master_port = 7001;
  place.controller = "gloo";
  auto list = host_variables(place, {});
  CHECK(value_of(list, "HOROVOD_GLOO_IFACE") == "ens3");
  CHECK(value_of(list, "NCCL_SOCKET_IFNAME") == "ens3,ens4");
  CHECK(value_of(list, "GLOO_SOCKET_IFNAME") == "ens3");
  CHECK(value_of(list, "MASTER_PORT") == "7001");
  CHECK(value_of(list, "PYTHONUNBUFFERED") == "1");
  list = host_variables(place, {{"NCCL_SOCKET_IFNAME", "ib0"}, {"HOROVOD_GLOO_IFACE", "stray"}});
  CHECK(value_of(list, "NCCL_SOCKET_IFNAME") == "unset");
  CHECK(value_of(list, "HOROVOD_GLOO_IFACE") == "ens3");
}

TEST_CASE("oneCCL is set up where it is asked for, and the user's settings of it stand") {
  rendezvous::RendezvousAddress place;
  place.interfaces = {"ens3", "ens4"};
  place.cpu_operations = "gloo";
  CHECK(value_of(host_variables(place, {}), "CCL_ATL_TRANSPORT") == "unset");
  place.cpu_operations = "CCL";
  const auto list = host_variables(place, {{"CCL_WORKER_OFFLOAD", "1"}});
  CHECK(value_of(list, "CCL_ATL_TRANSPORT") == "ofi");
  CHECK(value_of(list, "CCL_KVS_IFACE") == "ens3");
  CHECK(value_of(list, "CCL_WORKER_OFFLOAD") == "unset");
}

TEST_CASE("Variables are put over others by name") {
  CHECK(with_variables({{"A", "1"}, {"B", "2"}}, {{"C", "3"}, {"A", "4"}}) ==
        EnvironmentList{{"A", "4"}, {"B", "2"}, {"C", "3"}});
}

}  // namespace
}  // namespace hora::launcher
