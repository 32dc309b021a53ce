// SPDX-License-Identifier: Apache-2.0
#include "launcher/doctor/findings.h"

#include <algorithm>

#include "launcher/doctor/report.h"
#include "tests/support/catch.h"

using namespace hora::launcher;
using namespace hora::launcher::doctor;

namespace {

constexpr std::int64_t kGiB = 1 << 30;

HostExamination healthy(const std::string& name) {
  HostExamination host;
  host.name = name;
  host.slots = 2;
  host.hello.emplace();
  host.hello->boot_id = name;
  host.machine =
      Json::parse(R"({"hostname": "x", "kernel": "6.1", "machine": "x86_64", "os": "Debian",
    "cpu": {"model": "m", "usable": 8, "numa_nodes": 1}, "memory": {"total_bytes": 68719476736,
    "available_bytes": 60719476736}, "cgroup": {"memory_max": -1, "pids_max": -1, "cpus": 0},
    "limits": {"memlock": {"soft": -1, "hard": -1}, "nofile": {"soft": 1024, "hard": 524288},
    "nproc": {"soft": -1, "hard": -1}}, "shm": {"free_bytes": 8589934592, "total_bytes": 8589934592},
    "tmp": {"free_bytes": 8589934592}, "cache": {"path": "/c", "free_bytes": 8589934592, "free_inodes": 100},
    "load": 0.1, "infiniband_devices": 0, "gpus": {"devices": 0}})");
  host.software =
      Json::parse(R"({"glibc": "2.36", "nvidia": [], "python": {"path": "/usr/bin/python3",
    "version": "3.11.2", "packages": {"torch": "2.4.0", "numpy": "2.0.1"}, "nccl": []}})");
  host.leftovers = Json::array();
  host.clock_offset_ms = 0.1;
  host.clock_error_ms = 0.2;
  return host;
}

Examination set_of(int count) {
  Examination set;
  for (int i = 0; i < count; ++i) set.hosts.push_back(healthy("n" + std::to_string(i)));
  return set;
}

const Finding* find(const std::vector<Finding>& findings, const std::string& code) {
  const auto found = std::find_if(findings.begin(), findings.end(),
                                  [&](const Finding& f) { return f.code == code; });
  return found == findings.end() ? nullptr : &*found;
}

// Changes one host of three and expects this one finding, at that host, whole.
template <typename Change>
void expect(const std::string& code, Severity severity, Change change) {
  Examination set = set_of(3);
  change(set.hosts[1]);
  const auto findings = find_problems(set);
  INFO(code << "\n" << report_text(set, findings, true));
  const Finding* finding = find(findings, code);
  REQUIRE(finding != nullptr);
  CHECK(finding->severity == severity);
  CHECK(std::find(finding->hosts.begin(), finding->hosts.end(), "n1") != finding->hosts.end());
  CHECK_FALSE(finding->what.empty());
  CHECK_FALSE(finding->why.empty());
  CHECK_FALSE(finding->fix.empty());
  CHECK(doctor::exit_code_of(findings) == (severity == Severity::kError ? 1 : 0));
}

}  // namespace

TEST_CASE("healthy hosts that are alike give no finding") {
  const Examination set = set_of(4);
  CHECK(find_problems(set).empty());
  CHECK(report_text(set, {}, false).find("0 errors, 0 warnings, 0 notes") != std::string::npos);
  const std::vector<Finding> one(1, {Severity::kError, "D_X", {"a"}, "what", "why", "fix", {}});
  CHECK(report_text(set, one, false).find("1 error, 0 warnings, 0 notes") != std::string::npos);
}

TEST_CASE("each thing that is wrong with one host is named") {
  using H = HostExamination&;
  expect("E_SSH_AUTH", Severity::kError, [](H h) {
    h.failure = Failure{"E_SSH_AUTH", "no key was accepted", ""};
  });
  expect("D_SILENT", Severity::kError,
         [](H h) { h.unanswered.push_back("which software it has"); });
  expect("D_SLOTS_CPUS", Severity::kWarning, [](H h) { h.slots = 9; });
  expect("D_SLOTS_GPUS", Severity::kWarning, [](H h) { h.machine["gpus"]["devices"] = 1; });
  expect("D_CPU_QUOTA", Severity::kWarning, [](H h) { h.machine["cgroup"]["cpus"] = 1.5; });
  expect("D_PIDS", Severity::kWarning, [](H h) { h.machine["cgroup"]["pids_max"] = 100; });
  expect("D_MEMORY_LIMIT", Severity::kNote, [](H h) { h.machine["cgroup"]["memory_max"] = kGiB; });
  expect("D_MEMORY", Severity::kWarning,
         [](H h) { h.machine["memory"]["available_bytes"] = 1000; });
  expect("D_SHM", Severity::kWarning, [](H h) { h.machine["shm"]["free_bytes"] = 1000; });
  expect("D_CACHE_SPACE", Severity::kWarning, [](H h) { h.machine["cache"]["free_bytes"] = 1000; });
  expect("D_CACHE_INODES", Severity::kError, [](H h) { h.machine["cache"]["free_inodes"] = 0; });
  expect("D_TMP_SPACE", Severity::kWarning, [](H h) { h.machine["tmp"]["free_bytes"] = 1000; });
  expect("D_NOFILE", Severity::kWarning, [](H h) { h.machine["limits"]["nofile"]["hard"] = 256; });
  expect("D_NPROC", Severity::kWarning, [](H h) { h.machine["limits"]["nproc"]["soft"] = 64; });
  expect("D_STACK", Severity::kWarning, [](H h) {
    h.machine["limits"]["stack"] = {{"soft", 262144}};
  });
  expect("D_ZOMBIES", Severity::kWarning, [](H h) {
    h.machine["zombies"] = {{"count", 30},
                            {"parent", {{"pid", 7}, {"children", 29}, {"command", "init"}}}};
  });
  expect("D_GPU_BUSY", Severity::kNote, [](H h) {
    h.software["nvidia"] = Json::array({{{"used_mib", 9000}, {"ecc_errors", 0}}});
    h.software["gpu_processes"] = 2;
  });
  expect("D_MEMLOCK", Severity::kError, [](H h) {
    h.machine["infiniband_devices"] = 1;
    h.machine["limits"]["memlock"]["soft"] = 65536;
  });
  expect("D_PYTHON", Severity::kWarning, [](H h) {
    h.software["python"] = {{"error", "no python3 in PATH"}};
  });
  expect("D_IMPORT", Severity::kError,
         [](H h) { h.software["python"]["imports"]["torch"]["error"] = "ImportError: x"; });
  expect("D_LEFTOVERS", Severity::kWarning, [](H h) {
    h.leftovers.push_back({{"pid", 7}, {"command", "x"}});
  });
  expect("D_CLOCK", Severity::kWarning, [](H h) { h.clock_offset_ms = -3000; });
  expect("D_CLOCKS", Severity::kNote, [](H h) { h.clock_offset_ms = 500; });
  expect("D_SAME_HOST", Severity::kError, [](H h) { h.hello->boot_id = "n0"; });
  expect("D_LOAD", Severity::kNote, [](H h) { h.machine["load"] = 80.0; });
  expect("D_DIFFERS", Severity::kWarning,
         [](H h) { h.software["python"]["packages"]["torch"] = "2.5.0"; });
  expect("D_DIFFERS", Severity::kNote, [](H h) { h.machine["machine"] = "aarch64"; });
  expect("D_GPU_ECC", Severity::kError, [](H h) {
    h.software["nvidia"] = Json::array({{{"used_mib", 1}, {"ecc_errors", 3}}});
  });
  expect("D_GPU_MEMORY", Severity::kWarning, [](H h) {
    h.software["nvidia"] = Json::array({{{"used_mib", 9000}, {"ecc_errors", 0}}});
    h.software["gpu_processes"] = 0;
  });
  expect("D_ROUTE", Severity::kError, [](H h) { h.peers[2] = {{"error", "refused"}}; });
  expect("D_MTU", Severity::kError, [](H h) {
    h.peers[2] = {{"rtt_us", 50.0}, {"mbit_s", 900.0}, {"mtu", 9000}, {"path_mtu", 1500}};
  });
}

TEST_CASE("a library that does not work is named, with the place where it failed") {
  using H = HostExamination&;
  const Json crash = {{"error", "it was ended by SIGSEGV"}, {"stage", "starting it"}};
  expect("D_LIBRARY", Severity::kError, [&](H h) { h.selftests["alone"] = crash; });
  expect("D_SHARED_MEMORY", Severity::kError, [&](H h) { h.selftests["shared_memory"] = crash; });
  expect("D_LOOPBACK", Severity::kError, [&](H h) { h.selftests["tcp"] = crash; });
  expect("D_MPI", Severity::kWarning, [&](H h) { h.selftests["mpi"] = crash; });
  expect("D_NCCL", Severity::kError, [&](H h) { h.selftests["nccl"] = crash; });
  expect("D_NCCL", Severity::kWarning, [&](H h) {
    h.selftests["nccl_copies"] =
        Json::array({{{"path", "/x/libnccl.so.2"}, {"error", "e"}, {"stage", "loading it"}}});
  });
  expect("D_NCCL", Severity::kWarning, [](H h) {
    h.machine["gpus"]["devices"] = 2;
    h.selftests["nccl"]["absent"] = "libnccl.so.2: no such file";
  });
  expect("D_NCCL", Severity::kWarning, [](H h) {
    h.selftests["nccl"] = {{"version", "2.28.9"},
                           {"notes", Json::array({"the kernels do not load", 7})}};
  });
  Examination set = set_of(1);
  set.hosts[0].selftests = {{"alone", {{"version", "0.1.0"}}},
                            {"mpi", {{"absent", "libmpi.so.40: no such file"}}},
                            {"nccl", {{"absent", "no NVIDIA driver"}}},
                            {"nccl_copies", Json::array()}};
  CHECK(find_problems(set).empty());
  set.hosts[0].selftests["mpi"] = crash;
  CHECK(find(find_problems(set), "D_MPI")->what ==
        "MPI failed: starting it: it was ended by SIGSEGV");
}

TEST_CASE("of a job of all hosts that does not come about, the host at fault is named") {
  Examination set = set_of(3);
  set.world = {{"ranks", 3}, {"backends", {"gloo"}}};
  CHECK(find_problems(set).empty());
  set.world = {{"ranks", 3}, {"error", "no network joins them"}};
  CHECK(find(find_problems(set), "D_WORLD")->what == "no job of all hosts: no network joins them");

  const Json waited = {{"stage", "joining"}, {"error", "timed out waiting for rank 2 to start"}};
  set.world = {
      {"ranks", 3}, {"failed", {{"n0", waited}, {"n1", waited}}}, {"missing", {"n2", "n2"}}};
  CHECK(find(find_problems(set), "D_WORLD")->hosts == std::vector<std::string>{"n2"});

  set.world["failed"]["n1"] = {{"stage", "reaching the launcher"}, {"error", "timed out"}};
  CHECK(find(find_problems(set), "D_WORLD")->hosts == std::vector<std::string>{"n1"});

  set.world = {
      {"ranks", 3},
      {"failed", {{"n0", {{"stage", "adding numbers"}, {"error", "no way"}}}, {"n2", waited}}}};
  const auto findings = find_problems(set);
  CHECK(find(findings, "D_WORLD")->hosts == std::vector<std::string>{"n0", "n2"});
  CHECK(find(findings, "D_WORLD")->what == "a job of all hosts failed; n0: adding numbers: no way");
}

TEST_CASE("known problems are found, with their sources") {
  expect("K_torch-before-numpy-2", Severity::kError,
         [](HostExamination& h) { h.software["python"]["packages"]["torch"] = "2.2.2"; });
  expect("K_nccl-two-copies", Severity::kError, [](HostExamination& h) {
    h.software["python"]["packages"]["nvidia-nccl-cu11"] = "2.14.3";
    h.software["python"]["packages"]["nvidia-nccl-cu12"] = "2.27.3";
  });
  expect("K_protobuf-4-tensorflow", Severity::kError, [](HostExamination& h) {
    h.software["python"]["packages"]["tensorflow"] = "2.9.0";
    h.software["python"]["packages"]["protobuf"] = "4.21.0";
  });
  expect("K_cuda12-driver", Severity::kError, [](HostExamination& h) {
    h.software["python"]["torch_cuda"] = "12.1";
    h.machine["gpus"]["driver"] = "470.57.02";
  });
  expect("K_infiniband-memlock", Severity::kError, [](HostExamination& h) {
    h.machine["infiniband_devices"] = 2;
    h.machine["limits"]["memlock"]["soft"] = 65536;
  });
  expect("K_cuda13-driver", Severity::kError, [](HostExamination& h) {
    h.software["python"]["torch_cuda"] = "13.0";
    h.machine["gpus"]["driver"] = "570.133.20";
  });
  expect("K_driver-library-mismatch", Severity::kError, [](HostExamination& h) {
    h.selftests["driver"] = {{"nvml_error", "Driver/library version mismatch"},
                             {"nvml_mismatch", true}};
  });
  expect("K_container-lost-gpus", Severity::kError,
         [](HostExamination& h) { h.selftests["driver"]["nvml_error"] = "Unknown Error"; });
  expect("K_no-fabric-manager", Severity::kError, [](HostExamination& h) {
    h.selftests["driver"]["cuda_error"] = "CUDA_ERROR_SYSTEM_NOT_READY";
  });
  expect("K_cuda-compat-on-wrong-gpu", Severity::kError, [](HostExamination& h) {
    h.selftests["driver"]["cuda_error"] = "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE";
  });
  expect("K_torch-2.2-old-nccl", Severity::kError, [](HostExamination& h) {
    h.software["python"]["packages"]["nvidia-nccl-cu12"] = "2.18.1";
  });
  const auto copies = [](const std::vector<std::string>& versions) {
    Json list = Json::array();
    for (const std::string& version : versions)
      list.push_back({{"path", "/x"}, {"version", version}});
    return list;
  };
  expect("K_nccl-several-versions", Severity::kNote, [&](HostExamination& h) {
    h.selftests["nccl_copies"] = copies({"2.18.1", "2.20.5", "2.18.1"});
  });
  expect("K_nccl-2.29.2", Severity::kWarning,
         [&](HostExamination& h) { h.selftests["nccl_copies"] = copies({"2.29.2"}); });
  expect("K_nccl-2.19.4", Severity::kNote,
         [&](HostExamination& h) { h.selftests["nccl_copies"] = copies({"2.19.4"}); });
  Examination set = set_of(1);
  set.hosts[0].selftests["nccl_copies"] = copies({"2.18.1", "2.18.1"});
  CHECK(find_problems(set).empty());
  set.hosts[0].software["python"]["packages"]["torch"] = "2.2.2";
  CHECK_FALSE(find(find_problems(set), "K_torch-before-numpy-2")->sources.empty());
}

TEST_CASE("an old C library matters only to the shipped runtime") {
  Examination set = set_of(1);
  set.hosts[0].hello = Hello{};
  set.hosts[0].hello->c_library = "glibc 2.17";
  CHECK(find(find_problems(set), "D_GLIBC") == nullptr);
  set.hosts[0].hello->machine = "aarch64";
  set.least_glibc["x86_64"] = "2.28";
  CHECK(find(find_problems(set), "D_GLIBC") == nullptr);
  set.least_glibc["aarch64"] = "2.28";
  REQUIRE(find(find_problems(set), "D_GLIBC") != nullptr);
  set.hosts[0].hello->c_library = "musl";
  REQUIRE(find(find_problems(set), "D_GLIBC") != nullptr);
  set.hosts[0].hello->c_library = "glibc 2.28";
  CHECK(find(find_problems(set), "D_GLIBC") == nullptr);
}

TEST_CASE("a library is not reported where the C library is too old to load anything") {
  Examination set = set_of(1);
  set.least_glibc["x86_64"] = "2.28";
  set.hosts[0].hello = Hello{};
  set.hosts[0].hello->machine = "x86_64";
  set.hosts[0].selftests["mpi"] = {{"error", "ended with code 127"}};
  CHECK(find(find_problems(set), "D_MPI") != nullptr);
  set.hosts[0].hello->c_library = "none";
  CHECK(find(find_problems(set), "D_MPI") == nullptr);
  CHECK(find(find_problems(set), "D_GLIBC") != nullptr);
}

TEST_CASE("interfaces for NCCL that a host does not have, or that lead nowhere, are named") {
  const auto found = [](const std::string& value, int gpus = 1) -> std::optional<Finding> {
    Examination set = set_of(2);
    for (HostExamination& host : set.hosts) {
      const bool is_first = host.name == "n0";
      host.hello->interfaces.push_back({.name = "lo", .address = "127.0.0.1", .loopback = true});
      host.hello->interfaces.push_back(
          {.name = is_first ? "eth0" : "ens5", .address = is_first ? "10.0.0.1" : "10.0.0.2"});
      host.machine["gpus"]["devices"] = gpus;
    }
    set.nccl_interfaces = value;
    const auto findings = find_problems(set);
    const Finding* const finding = find(findings, "D_NCCL_INTERFACE");
    return finding == nullptr ? std::nullopt : std::optional(*finding);
  };
  for (const char* fine :
       {"", "eth0,ens5", "e", "=eth0,ens5", "^docker0,lo", "^=lo", "^lo", "eth,ens:1"}) {
    INFO(fine);
    CHECK_FALSE(found(fine));
  }
  CHECK(found("eth0")->what == "NCCL_SOCKET_IFNAME=eth0 selects none of the interfaces lo, ens5");
  CHECK(found("eth0")->severity == Severity::kError);
  CHECK(found("eth0", 0)->severity == Severity::kWarning);
  CHECK(found("=eth,ens5")->hosts == std::vector<std::string>{"n0"});
  CHECK(found("^e")->what == "NCCL_SOCKET_IFNAME=^e selects lo");
  CHECK(found("^docker0")->fix == "exclude it, too: NCCL_SOCKET_IFNAME=^docker0,lo");
  CHECK(found("lo")->why ==
        "NCCL gives the other hosts the address 127.0.0.1, at which they find only themselves");
}

TEST_CASE("one slow link among many is named") {
  Examination set = set_of(4);
  for (int from = 0; from < 4; ++from) {
    for (int to = 0; to < 4; ++to) {
      if (from != to) set.hosts[from].peers[to] = {{"rtt_us", 50.0}, {"mbit_s", 9000.0}};
    }
  }
  CHECK(find_problems(set).empty());
  set.hosts[1].peers[3] = {{"rtt_us", 50.0}, {"mbit_s", 90.0}};
  set.hosts[2].peers[0] = {{"rtt_us", 40'000.0}, {"mbit_s", 8000.0}};
  const auto findings = find_problems(set);
  CHECK(find(findings, "D_SLOW_LINK")->hosts == std::vector<std::string>{"n1", "n3"});
  CHECK(find(findings, "D_LATENCY")->hosts == std::vector<std::string>{"n2", "n0"});
}

TEST_CASE("what looks slow is measured again, and the better numbers count") {
  Examination set = set_of(3);
  for (int from = 0; from < 3; ++from) {
    for (int to = 0; to < 3; ++to) {
      if (from != to) set.hosts[from].peers[to] = {{"rtt_us", 50.0}, {"mbit_s", 9000.0}};
    }
  }
  CHECK(doubtful_ways(set).empty());
  set.hosts[1].peers[2] = {{"rtt_us", 5000.0}, {"mbit_s", 90.0}};
  set.hosts[0].peers[1] = {{"error", "timed out"}};  // no number is doubtful
  CHECK(doubtful_ways(set) == std::vector<std::pair<int, int>>{{1, 2}});
  const Json better = better_of(set.hosts[1].peers[2], {{"rtt_us", 60.0}, {"mbit_s", 80.0}});
  CHECK(better["rtt_us"] == 60.0);
  CHECK(better["mbit_s"] == 90.0);
  CHECK(better_of(better, {{"error", "x"}}) == better);
  CHECK(better_of(Json(), better) == better);
}

TEST_CASE("the same finding of several hosts is one") {
  Examination set = set_of(3);
  for (HostExamination& host : set.hosts) host.machine["shm"]["free_bytes"] = 1000;
  const auto findings = find_problems(set);
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].hosts.size() == 3);
}

TEST_CASE("the report is one document of JSON") {
  const Examination set = set_of(2);
  const Json document = Json::parse(report_json(set, find_problems(set)));
  CHECK(document["schema"] == 1);
  CHECK(document["hosts"].size() == 2);
}
