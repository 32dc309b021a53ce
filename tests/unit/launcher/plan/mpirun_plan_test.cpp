// SPDX-License-Identifier: Apache-2.0
#include "launcher/plan/mpirun_plan.h"

#include <algorithm>

#include "launcher/plan/plan.h"
#include "rendezvous/base/text.h"
#include "tests/support/catch.h"

using namespace hora;
using namespace hora::launcher;

namespace {

JobSpec job(int ranks, const std::string& hosts) {
  JobSpec spec;
  spec.num_proc = ranks;
  if (!hosts.empty()) spec.hosts = *parse_host_list(hosts, "-H");
  spec.command = {"python", "train.py"};
  return spec;
}

std::string line(const JobSpec& spec, MpiFlavour flavour, const HostFindings& findings = {},
                 const EnvironmentList& environment = {}) {
  const auto argv = plan_mpirun(spec, settle_named_slots(spec), flavour, findings, environment);
  REQUIRE(argv);
  return join(*argv, " ");
}

std::string value_of(const EnvironmentList& list, const std::string& name) {
  for (const auto& variable : list) {
    if (variable.first == name) return variable.second;
  }
  return "(not set)";
}

}  // namespace

TEST_CASE("mpirun: without -np every slot gets a rank, and too many of them are an error") {
  CHECK_THAT(line(job(0, "a:2,b:3"), MpiFlavour::kOpenMpi), Contains("-np 5 "));
  // Their sum is 0 in 32 bits.
  std::vector<Host> hosts(65'536);
  for (Host& host : hosts) host.slots = 65'536;
  JobSpec spec = job(0, "");
  const auto argv = plan_mpirun(spec, hosts, MpiFlavour::kOpenMpi, {}, {});
  REQUIRE_FALSE(argv);
  CHECK(argv.error().code == ErrorCode::kUsage);
  CHECK(argv.error().message ==
        "the hosts offer 4294967296 slots; a job has at most 1000000 ranks; limit it with -np");
  spec.num_proc = 5;
  CHECK_THAT(line(spec, MpiFlavour::kOpenMpi), Contains("-np 5 "));
}

TEST_CASE("mpirun: where interfaces have other names on other hosts, Open MPI gets their network") {
  const JobSpec spec = job(2, "a:1,b:1");
  const auto line_for = [&](std::vector<std::string> addresses) {
    return line(spec, MpiFlavour::kOpenMpi, {{}, {"br0", "eth0"}, std::move(addresses)});
  };
  CHECK_THAT(line_for({"10.79.0.250", "10.79.0.2"}),
             Contains("btl_tcp_if_include 10.79.0.0/24 -x NCCL_SOCKET_IFNAME=br0,eth0 python"));
  CHECK_THAT(line_for({"10.79.0.1", "10.79.3.9"}), Contains("if_include 10.79.0.0/22 "));
  CHECK_THAT(line_for({"10.79.0.1", "192.168.3.9"}), Contains("if_include br0,eth0 "));
  CHECK_THAT(line_for({"fd00::1", "fd00::2"}), Contains("if_include br0,eth0 "));
  CHECK_THAT(line_for({}), Contains("if_include br0,eth0 "));
}

TEST_CASE(
    "mpirun: what was found on the hosts is used, the user's choice of interfaces before it") {
  JobSpec spec = job(4, "a:2,b:2");
  const HostFindings findings = {{"/c/1", "/c/2"}, {"eth0"}, {}};
  CHECK_THAT(line(spec, MpiFlavour::kOpenMpi, findings),
             Contains("-mca btl_tcp_if_include eth0 -x "
                      "NCCL_SOCKET_IFNAME=eth0 python"));
  spec.network_interfaces = {"10.0.0.0/8"};
  const std::string chosen = line(spec, MpiFlavour::kOpenMpi, findings);
  CHECK_THAT(chosen, Contains("-mca btl_tcp_if_include 10.0.0.0/8 python"));

  const auto environment =
      mpirun_environment({{"PATH", "/bin"}, {"HOROVOD_RANK", "7"}, {"PYTHONPATH", ""}, {"A", "1"}},
                         spec, MpiFlavour::kOpenMpi, findings);
  CHECK(value_of(environment, "PATH") == "/c/1/bin:/c/2/bin:/bin");
  CHECK(value_of(environment, "PYTHONPATH") == "/c/1/python:/c/2/python");
  CHECK(value_of(environment, "LD_LIBRARY_PATH") == "/c/1/lib:/c/2/lib");
  CHECK(value_of(environment, "HOROVOD_GLOO_IFACE") == "eth0");
  CHECK(value_of(environment, "HOROVOD_CONTROLLER") == "mpi");
  CHECK(value_of(environment, "HOROVOD_RANK") == "(not set)");
}

TEST_CASE("mpirun: variables go by name, sorted; values and odd names never") {
  const EnvironmentList environment = {{"Z", "secret"},
                                       {"A", "1"},
                                       {"HOME", "/root"},
                                       {"SSH_AUTH_SOCK", "s"},
                                       {"BASH_FUNC_f%%", "() { :; }"}};
  const std::string text = line(job(2, ""), MpiFlavour::kOpenMpi, {}, environment);
  CHECK_THAT(text, Contains(" -x A -x Z python train.py"));
  CHECK(text.find("secret") == std::string::npos);
  CHECK(text.find("HOME") == std::string::npos);
  CHECK(text.find("BASH_FUNC") == std::string::npos);
  CHECK(line(job(2, ""), MpiFlavour::kMpich, {}, environment).find("-x") == std::string::npos);
}

TEST_CASE("mpirun: many hosts are all reached from here") {
  const std::string many = line(job(64, "n[1-64]:1"), MpiFlavour::kOpenMpi);
  CHECK_THAT(many, Contains("-mca plm_rsh_no_tree_spawn true -mca plm_rsh_num_concurrent 64 "));
  CHECK(line(job(63, "n[1-63]:1"), MpiFlavour::kOpenMpi).find("plm_rsh") == std::string::npos);
}

TEST_CASE("mpirun: without -np every slot") {
  CHECK_THAT(line(job(0, "a:2,b:3"), MpiFlavour::kOpenMpi), Contains("-np 5 -H a:2,b:3 "));
}

TEST_CASE("mpirun: flavours by their version text") {
  CHECK(*parse_mpi_flavour("mpirun (Open MPI) 4.1.4\n") == MpiFlavour::kOpenMpi);
  CHECK(*parse_mpi_flavour("mpirun (IBM Spectrum MPI) 10.3") == MpiFlavour::kSpectrum);
  CHECK(*parse_mpi_flavour("HYDRA build details:\n Version: 4.0.2") == MpiFlavour::kMpich);
  CHECK(*parse_mpi_flavour("Intel(R) MPI Library for Linux") == MpiFlavour::kIntel);
  CHECK_FALSE(parse_mpi_flavour(""));
}
