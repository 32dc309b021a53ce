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

// What their `mpirun --version` prints.
constexpr const char* kOpenMpi4 = "mpirun (Open MPI) 4.1.4\n\nReport bugs to ...\n";
constexpr const char* kOpenMpi5 = "mpirun (Open MPI) 5.0.11\n\nReport bugs to ...\n";
constexpr const char* kMpich = "HYDRA build details:\n    Version:         5.0.2\n";
constexpr const char* kIntel =
    "Intel(R) MPI Library for Linux* OS, Version 2021.19.0 Build 20260929 (id: 1821d9b)\n";

const MpiLauncher& row_of(const char* version) { return **find_mpi_launcher(version); }

std::string line(const JobSpec& spec, const char* version, const HostFindings& findings = {},
                 const EnvironmentList& environment = {}) {
  const auto argv =
      plan_mpirun(spec, settle_named_slots(spec), row_of(version), findings, environment);
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
  CHECK_THAT(line(job(0, "a:2,b:3"), kOpenMpi4), Contains("-np 5 "));
  // Their sum is 0 in 32 bits.
  std::vector<Host> hosts(65'536);
  for (Host& host : hosts) host.slots = 65'536;
  JobSpec spec = job(0, "");
  const auto argv = plan_mpirun(spec, hosts, row_of(kOpenMpi4), {}, {});
  REQUIRE_FALSE(argv);
  CHECK(argv.error().code == ErrorCode::kUsage);
  CHECK(argv.error().message ==
        "the hosts offer 4294967296 slots; a job has at most 1000000 ranks; limit it with -np");
  spec.num_proc = 5;
  CHECK_THAT(line(spec, kOpenMpi4), Contains("-np 5 "));
}

TEST_CASE("mpirun: where interfaces have other names on other hosts, Open MPI gets their network") {
  const JobSpec spec = job(2, "a:1,b:1");
  const auto line_for = [&](std::vector<std::string> addresses) {
    return line(spec, kOpenMpi4, {{}, {"br0", "eth0"}, std::move(addresses)});
  };
  CHECK_THAT(line_for({"10.79.0.250", "10.79.0.2"}),
             Contains("btl_tcp_if_include 10.79.0.0/24 python"));
  CHECK_THAT(line_for({"10.79.0.1", "10.79.3.9"}), Contains("if_include 10.79.0.0/22 "));
  CHECK_THAT(line_for({"10.79.0.1", "192.168.3.9"}), Contains("if_include br0,eth0 "));
  CHECK_THAT(line_for({"fd00::1", "fd00::2"}), Contains("if_include br0,eth0 "));
  CHECK_THAT(line_for({}), Contains("if_include br0,eth0 "));
}

TEST_CASE(
    "mpirun: what was found on the hosts is used, the user's choice of interfaces before it") {
  JobSpec spec = job(4, "a:2,b:2");
  const HostFindings findings = {{"/c/1", "/c/2"}, {"eth0"}, {}};
  CHECK_THAT(line(spec, kOpenMpi4, findings), Contains("--mca btl_tcp_if_include eth0 python"));
  spec.network_interfaces = {"10.0.0.0/8"};
  const std::string chosen = line(spec, kOpenMpi4, findings);
  CHECK_THAT(chosen, Contains("-mca btl_tcp_if_include 10.0.0.0/8 python"));

  const auto environment =
      mpirun_environment({{"PATH", "/bin"}, {"HOROVOD_RANK", "7"}, {"PYTHONPATH", ""}, {"A", "1"}},
                         spec, row_of(kOpenMpi4), findings);
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
  const std::string text = line(job(2, ""), kOpenMpi4, {}, environment);
  CHECK_THAT(text, Contains(" -x A -x Z python train.py"));
  CHECK(text.find("secret") == std::string::npos);
  CHECK(text.find("HOME") == std::string::npos);
  CHECK(text.find("BASH_FUNC") == std::string::npos);
  CHECK(line(job(2, ""), kMpich, {}, environment).find("-x") == std::string::npos);
}

TEST_CASE("mpirun: many hosts are all reached from here") {
  const std::string many = line(job(64, "n[1-64]:1"), kOpenMpi4);
  CHECK_THAT(many, Contains("--mca plm_rsh_no_tree_spawn true --mca plm_rsh_num_concurrent 64 "));
  CHECK(line(job(63, "n[1-63]:1"), kOpenMpi4).find("plm_rsh") == std::string::npos);
}

TEST_CASE("mpirun: without -np every slot") {
  CHECK_THAT(line(job(0, "a:2,b:3"), kOpenMpi4), Contains("-np 5 -H a:2,b:3 "));
}

TEST_CASE("mpirun: launchers by their version text") {
  CHECK(row_of(kOpenMpi4).name == "Open MPI");
  CHECK(row_of(kOpenMpi5).name == "Open MPI 5");
  CHECK(row_of("mpirun (Open MPI) 6.0.0rc2\n").name == "Open MPI 6");
  CHECK(row_of("mpirun (Open MPI) 10.1.0\n").name == "Open MPI 6");
  CHECK(row_of("mpirun (OpenRTE) 3.1.3\n").name == "Open MPI");
  CHECK(row_of("mpirun (IBM Spectrum MPI) 10.3").name == "IBM Spectrum MPI");
  CHECK(row_of(kMpich).name == "MPICH");
  CHECK(row_of(kIntel).name == "Intel MPI");
  CHECK_FALSE(find_mpi_launcher(""));
}

TEST_CASE("mpirun: options of Open MPI have two dashes: 5 ignores or refuses some with one") {
  JobSpec spec = job(64, "n[1-64]:1");
  spec.ssh.port = 2222;
  for (const char* version : {kOpenMpi4, kOpenMpi5}) {
    const std::string text = " " + line(spec, version);
    for (const char* option : {" -bind-to", " -map-by", " -mca"}) {
      CHECK(text.find(option) == std::string::npos);
    }
  }
}

TEST_CASE("mpirun: what the user has chosen for MPI is not given a second time") {
  JobSpec spec = job(2, "a:1,b:1");
  const HostFindings findings = {{}, {"eth0"}, {}};
  const std::string plain = line(spec, kOpenMpi5, findings);
  for (const char* part : {"--mca pml ob1", "--mca btl ^openib", "--mca btl_tcp_if_include eth0",
                           "--bind-to none", "--map-by slot", "--tag-output"}) {
    CHECK_THAT(plain, Contains(part));
  }
  spec.mpi_args = "--mca pml ucx -mca btl self,tcp --bind-to core -tag-output";
  const std::string chosen =
      line(spec, kOpenMpi5, findings, {{"OMPI_MCA_btl_tcp_if_exclude", "lo"}});
  CHECK(chosen ==
        "mpirun --allow-run-as-root -np 2 -H a:1,b:1 --map-by slot -x OMPI_MCA_btl_tcp_if_exclude "
        "--mca pml ucx --mca btl self,tcp --bind-to core --tag-output python train.py");
}

TEST_CASE("mpirun: the user's interfaces for NCCL stay") {
  const JobSpec spec = job(2, "a:1,b:1");
  const HostFindings findings = {{}, {"eth0"}, {}};
  for (const char* version : {kOpenMpi4, kOpenMpi5, kMpich, kIntel}) {
    const auto value = [&](const EnvironmentList& environment) {
      return value_of(mpirun_environment(environment, spec, row_of(version), findings),
                      "NCCL_SOCKET_IFNAME");
    };
    CHECK(value({}) == "eth0");
    CHECK(value({{"NCCL_SOCKET_IFNAME", "^docker0,lo"}}) == "^docker0,lo");
    CHECK(line(spec, version, findings).find("NCCL_SOCKET_IFNAME=") == std::string::npos);
  }
}

TEST_CASE("mpirun: ssh gets its options in the words of each launcher") {
  JobSpec spec = job(2, "a:1,b:1");
  spec.ssh.port = 2222;
  spec.ssh.identity_file = "/k/id";
  CHECK_THAT(line(spec, kOpenMpi4), Contains("--mca plm_rsh_args -p 2222 -i /k/id"));
  CHECK_THAT(line(spec, kOpenMpi5), Contains("--mca plm_ssh_args -p 2222 -i /k/id"));
  CHECK_THAT(line(spec, kIntel), Contains("-launcher ssh -bootstrap-exec-args -p 2222 -i /k/id"));
  CHECK_THAT(line(spec, kMpich), Contains("-launcher ssh python"));
  const auto extra = [&](const EnvironmentList& environment) {
    return value_of(mpirun_environment(environment, spec, row_of(kMpich), {}),
                    "HYDRA_LAUNCHER_EXTRA_ARGS");
  };
  CHECK(extra({}) == "-p 2222 -i /k/id");
  CHECK(extra({{"HYDRA_LAUNCHER_EXTRA_ARGS", "-4"}}) == "-p 2222 -i /k/id -4");
}

TEST_CASE("mpirun: the program of --rsh gets its arguments") {
  JobSpec spec = job(2, "a:1,b:1");
  spec.rsh_command = {"ssh", "-i", "KEY"};
  CHECK_THAT(line(spec, kOpenMpi4), Contains("--mca plm_rsh_agent ssh -i KEY"));
  CHECK_THAT(line(spec, kOpenMpi5), Contains("--mca plm_ssh_agent ssh -i KEY --mca "
                                             "plm_ssh_no_tree_spawn true"));
  CHECK_THAT(line(spec, kIntel),
             Contains("-launcher ssh -launcher-exec ssh -bootstrap-exec-args -i KEY"));
  CHECK_THAT(line(spec, kMpich), Contains("-launcher ssh -launcher-exec ssh python"));
  CHECK(value_of(mpirun_environment({}, spec, row_of(kMpich), {}), "HYDRA_LAUNCHER_EXTRA_ARGS") ==
        "-i KEY");
  spec.rsh_command = {"ssh", "-o", "ProxyCommand nc %h %p"};
  const auto argv = plan_mpirun(spec, spec.hosts, row_of(kMpich), {}, {});
  REQUIRE_FALSE(argv);
  CHECK_THAT(argv.error().message, Contains("--rsh: mpirun splits at blanks, found 'ProxyCommand"));
}

TEST_CASE("mpirun: Python's unbuffered output would be torn into pieces, so tags go without it") {
  JobSpec spec = job(2, "");
  const auto value = [&](const char* version) {
    return value_of(mpirun_environment({{"PYTHONUNBUFFERED", "1"}}, spec, row_of(version), {}),
                    "PYTHONUNBUFFERED");
  };
  CHECK(value(kOpenMpi5) == "(not set)");
  CHECK(value(kMpich) == "(not set)");
  spec.variables = {{"PYTHONUNBUFFERED", "1"}};
  CHECK(value(kMpich) == "1");
  spec.variables.clear();
  spec.prefix_output = false;
  CHECK(value(kIntel) == "1");
}

TEST_CASE("mpirun: MPICH takes slots of its own for each host, Intel MPI one number for all") {
  CHECK_THAT(line(job(3, "a:2,b:1"), kMpich), Contains(" -hosts a:2,b:1 "));
  CHECK_THAT(line(job(3, "a:2,b:2"), kIntel), Contains(" -ppn 2 -hosts a,b "));
  const auto argv =
      plan_mpirun(job(3, ""), *parse_host_list("a:2,b:1", "-H"), row_of(kIntel), {}, {});
  REQUIRE_FALSE(argv);
  CHECK(argv.error().message ==
        "-H: Intel MPI needs the same number of slots on every host, found a:2 and b:1");
}

TEST_CASE("mpirun: Hydra ends in time by timeout(1)") {
  JobSpec spec = job(3, "a:2,b:1");
  spec.timeout = std::chrono::milliseconds(1500);
  CHECK(
      line(spec, kMpich) ==
      "timeout --foreground --kill-after=5 2 mpirun -l -np 3 -hosts a:2,b:1 -bind-to none -map-by "
      "slot python train.py");
  CHECK_THAT(line(spec, kOpenMpi5),
             Catch::Matchers::StartsWith("mpirun ") && Contains("--timeout 2 "));
}

TEST_CASE("mpirun: ranks of Intel MPI are not pinned unless the user says how") {
  JobSpec spec = job(2, "");
  const auto value = [&](const EnvironmentList& environment) {
    return value_of(mpirun_environment(environment, spec, row_of(kIntel), {}), "I_MPI_PIN");
  };
  CHECK(value({}) == "off");
  CHECK(value({{"I_MPI_PIN", "on"}}) == "on");
  spec.binding_args = "-genv I_MPI_PIN_DOMAIN socket";
  CHECK(value({}) == "(not set)");
}

TEST_CASE("mpirun: what a launcher cannot do is an error with the reason") {
  const auto message = [](const JobSpec& spec, const char* version) {
    const auto argv = plan_mpirun(spec, spec.hosts, row_of(version), {}, {});
    REQUIRE_FALSE(argv);
    CHECK(argv.error().code == ErrorCode::kUsage);
    return argv.error().message;
  };
  JobSpec spec = job(2, "a:2");
  spec.output_directory = "out";
  CHECK(message(spec, kOpenMpi5) ==
        "--output-filename is not supported with --mpi and Open MPI 5: its mpirun loses a part of "
        "the output");
  CHECK_THAT(line(spec, kOpenMpi4), Contains("--output-filename out:nojobid"));
  CHECK_THAT(line(spec, kMpich), Contains("-outfile-pattern out/rank.%r/stdout -errfile-pattern "
                                          "out/rank.%r/stderr"));
  spec.output_directory.clear();
  spec.stdin_policy = StdinPolicy::kAll;
  for (const char* version : {kOpenMpi4, kOpenMpi5, kMpich}) {
    CHECK_THAT(message(spec, version), Contains("--stdin all is not supported with --mpi and"));
  }
  CHECK_THAT(line(spec, kIntel), Contains("-s all"));
  spec.stdin_policy = StdinPolicy::kRankZero;
  spec.command = {"echo", "a:b", ":", "c"};
  for (const char* version : {kOpenMpi4, kOpenMpi5, kMpich, kIntel}) {
    CHECK_THAT(message(spec, version), Contains("the argument ':'"));
  }
}
