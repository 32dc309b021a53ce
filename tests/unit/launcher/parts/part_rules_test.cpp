// SPDX-License-Identifier: Apache-2.0
#include "launcher/parts/part_rules.h"

#include <string>

#include "tests/support/catch.h"

namespace hora::launcher {
namespace {

VendorNeed need_of(VendorMode mode) {
  VendorPart part;
  part.name = "Open MPI";
  part.origin = "/usr/lib/libmpi.so.40";
  part.hash = "0123456789abcdef";
  part.least_glibc = "2.34";
  VendorNeed need;
  need.name = "Open MPI";
  need.variable = "HORA_MPI";
  need.mode = mode;
  need.sonames = {"libmpi.so.40"};
  need.package = "libopenmpi3";
  need.part = std::make_shared<const VendorPart>(part);
  return need;
}

Hello host_with(const std::string& fault, const std::string& c_library = "glibc 2.36") {
  Hello host;
  host.c_library = c_library;
  host.libraries = {{"libmpi.so.40", fault.empty() ? "/lib/libmpi.so.40" : "", fault}};
  return host;
}

const Hello kHas = host_with("");
const Hello kLacks = host_with("libmpi.so.40 was not found");
const Hello kOld = host_with("libmpi.so.40 was not found", "glibc 2.31");

TEST_CASE("vendor need: the variable has three values") {
  CHECK(*vendor_mode({}, "HORA_MPI") == VendorMode::kAuto);
  CHECK(*vendor_mode({{"HORA_MPI", ""}}, "HORA_MPI") == VendorMode::kAuto);
  CHECK(*vendor_mode({{"HORA_MPI", "auto"}}, "HORA_MPI") == VendorMode::kAuto);
  CHECK(*vendor_mode({{"HORA_MPI", "site"}}, "HORA_MPI") == VendorMode::kSite);
  CHECK(*vendor_mode({{"HORA_NCCL", "site"}, {"HORA_MPI", "ship"}}, "HORA_MPI") ==
        VendorMode::kShip);
  CHECK(vendor_mode({{"HORA_MPI", "Ship"}}, "HORA_MPI").error().message ==
        "HORA_MPI='Ship': expected auto, site or ship");
}

TEST_CASE("vendor need: auto sends to hosts that have none") {
  const VendorNeed need = need_of(VendorMode::kAuto);
  CHECK_FALSE(uses_sent(need, kHas));
  CHECK(uses_sent(need, kLacks));
  CHECK_FALSE(uses_sent(need, kOld));
  for (const Hello& host : {kHas, kLacks, kOld}) {
    CHECK_FALSE(why_unfit(need, host, true));
    CHECK_FALSE(why_unfit(need, host, false));
  }
  CHECK(unfit_warning(need, kHas, true).empty());
  CHECK(unfit_warning(need, kLacks, true).empty());
  CHECK(unfit_warning(need, kOld, true) ==
        "no Open MPI was found that programs can load: libmpi.so.40 was not found; none is sent: "
        "this machine's needs glibc 2.34, and the host has glibc 2.31");
  CHECK(unfit_warning(need, kLacks, false) ==
        "no Open MPI was found that programs can load: libmpi.so.40 was not found");
}

TEST_CASE("vendor need: site refuses hosts that have none") {
  const VendorNeed need = need_of(VendorMode::kSite);
  CHECK_FALSE(needed_part(need));
  CHECK_FALSE(why_unfit(need, kHas, true));
  for (const bool is_remote : {true, false}) {
    const auto why = why_unfit(need, kLacks, is_remote);
    REQUIRE(why);
    CHECK(why->code == "E_LIBRARY");
    CHECK(why->message ==
          "the host has no Open MPI that programs can load (HORA_MPI=site): libmpi.so.40 was not "
          "found");
  }
  CHECK(unfit_warning(need, kLacks, true).empty());
}

TEST_CASE("vendor need: ship sends to all, and refuses hosts that cannot load it") {
  VendorNeed need = need_of(VendorMode::kShip);
  CHECK(uses_sent(need, kHas));
  CHECK_FALSE(why_unfit(need, kHas, true));
  CHECK_FALSE(why_unfit(need, kHas, false));
  REQUIRE(why_unfit(need, kOld, true));
  CHECK(why_unfit(need, kOld, true)->message ==
        "Open MPI cannot be sent to the host (HORA_MPI=ship): this machine's needs glibc 2.34, and "
        "the host has glibc 2.31");
  // This machine has it, or there would be no part.
  CHECK(why_unfit(need, kLacks, false));
  need.part.reset();
  need.why_no_part = "this machine's is for x86_64";
  CHECK_FALSE(uses_sent(need, kLacks));
  CHECK(why_unfit(need, kHas, true)->message ==
        "Open MPI cannot be sent to the host (HORA_MPI=ship): this machine's is for x86_64");
}

TEST_CASE("vendor need: what works with a driver is for hosts that have one") {
  VendorNeed need = need_of(VendorMode::kAuto);
  need.with = {"libcuda.so.1"};
  need.with_gpu = true;
  need.is_optional = true;
  VendorPart part = *need.part;
  part.needs = {"libstdc++.so.6"};
  need.part = std::make_shared<const VendorPart>(part);
  CHECK(libraries_of(need) == std::vector<std::string>{"libmpi.so.40", "libcuda.so.1"});
  CHECK(needed_part(need)->with == std::vector<std::string>{"libcuda.so.1", "libstdc++.so.6"});

  Hello host = kLacks;
  host.gpus = 1;
  host.libraries.push_back({"libcuda.so.1", "/lib/libcuda.so.1", ""});
  CHECK_FALSE(uses_sent(need, host));  // it has no C++
  need.mode = VendorMode::kShip;
  CHECK(why_unfit(need, host, true)->message ==
        "Open MPI cannot be sent to the host (HORA_MPI=ship): this machine's needs libstdc++.so.6 "
        "of the host");
  CHECK_FALSE(why_unfit(need, kLacks, true));  // no use for it
  host.libraries.push_back({"libstdc++.so.6", "/lib/libstdc++.so.6", ""});
  CHECK_FALSE(why_unfit(need, host, true));
  need.mode = VendorMode::kAuto;
  CHECK(uses_sent(need, host));
  CHECK_FALSE(uses_sent(need, kLacks));
  host.gpus = 0;
  CHECK_FALSE(uses_sent(need, host));
  // The job runs without it.
  host.gpus = 1;
  need.part.reset();
  need.why_no_part = "this machine has none";
  for (const VendorMode mode : {VendorMode::kAuto, VendorMode::kSite}) {
    need.mode = mode;
    CHECK_FALSE(why_unfit(need, host, true));
    CHECK(unfit_warning(need, host, true).empty());
    CHECK(plan_text(need).empty());
  }
}

TEST_CASE("vendor need: a host that says nothing of a library lacks it") {
  CHECK(why_unfit(need_of(VendorMode::kSite), Hello{}, true)->message ==
        "the host has no Open MPI that programs can load (HORA_MPI=site): libmpi.so.40 was not "
        "looked for");
}

JobSpec job_of(int ranks) {
  JobSpec spec;
  spec.num_proc = ranks;
  spec.hosts = {Host{"node1", "", ranks}};
  spec.command = {"python3", "train.py"};
  return spec;
}

// "core nccl?": a part that only hosts with a GPU get has a question mark.
std::string shipped(const JobSpec& spec, const EnvironmentList& environment = {}) {
  std::string text;
  for (const char* part : {"core", "ccl", "doctor", "gloo", "mpi", "nccl", "pmi", "tls", "tools"}) {
    const Shipping how = shipping_for_job(part, spec, environment);
    if (how == Shipping::kNo) continue;
    text += (text.empty() ? "" : " ") + std::string(part) + (how == Shipping::kToGpus ? "?" : "");
  }
  return text;
}

std::string examined(bool with_runtime) {
  std::string text;
  for (const char* part : {"core", "ccl", "doctor", "gloo", "mpi", "nccl", "pmi", "tls", "tools"}) {
    const Shipping how = shipping_for_doctor(part, with_runtime);
    if (how == Shipping::kNo) continue;
    text += (text.empty() ? "" : " ") + std::string(part) + (how == Shipping::kToGpus ? "?" : "");
  }
  return text;
}

}  // namespace

TEST_CASE("parts: a job ships what it needs") {
  CHECK(shipped(job_of(2)) == "core nccl?");
  JobSpec spec = job_of(4);
  SECTION("--rendezvous-tls") {
    spec.rendezvous_tls = true;
    CHECK(shipped(spec) == "core nccl? tls");
  }
  SECTION("--pmi") {
    spec.pmi = "pmix";
    CHECK(shipped(spec) == "core mpi nccl? pmi");
  }
  SECTION("--mpi") {
    spec.by_mpirun = true;
    CHECK(shipped(spec) == "core mpi nccl?");
  }
  SECTION("--cpu-operations mpi") {
    spec.knobs = {{"HOROVOD_CPU_OPERATIONS", "MPI"}};
    CHECK(shipped(spec) == "core mpi nccl?");
  }
  SECTION("--cpu-operations ccl") {
    spec.knobs = {{"HOROVOD_CPU_OPERATIONS", "CCL"}};
    CHECK(shipped(spec) == "core ccl nccl?");
  }
  SECTION("the launcher's environment names a backend") {
    CHECK(shipped(spec, {{"HORA_BACKENDS", "nccl,MPI"}}) == "core mpi nccl");
    CHECK(shipped(spec, {{"OTHER", "nccl,mpi"}}) == "core nccl?");
  }
}

TEST_CASE("parts: Gloo is shipped if the user asks for it or excludes better backends") {
  for (const char* list : {"gloo", "shm,Gloo", "-tcp"}) {
    CHECK(shipped(job_of(2), {{"HORA_BACKENDS", list}}) == "core gloo nccl?");
  }
  CHECK(shipped(job_of(2), {{"HORA_BACKENDS", "tcp"}}) == "core nccl?");
  SECTION("by -x") {
    JobSpec spec = job_of(2);
    spec.variables = {{"HORA_BACKENDS", "gloo"}};
    CHECK(shipped(spec) == "core gloo nccl?");
  }
  SECTION("by -x of one of several programs") {
    JobSpec spec = job_of(2);
    spec.programs = {{{"a"}, 1, {}}, {{"b"}, 1, {{"HORA_BACKENDS", "-tcp"}}}};
    CHECK(shipped(spec) == "core gloo nccl?");
  }
}

TEST_CASE("parts: the programs of the bundle go along where the command names them") {
  JobSpec spec = job_of(1);
  spec.command = {"hora-smoke", "--json"};
  CHECK(shipped(spec) == "core nccl? tools");
  spec.command = {"/bin/sh", "-c", "cd /tmp && exec hora-perf allreduce"};
  CHECK(shipped(spec) == "core nccl? tools");
}

TEST_CASE("parts: a part without a rule goes to all hosts") {
  CHECK(shipping_for_job("extra", job_of(1), {}) == Shipping::kYes);
  CHECK(shipping_for_doctor("extra", true) == Shipping::kYes);
}

TEST_CASE("parts: the doctor loads what ranks would load") {
  CHECK(examined(true) == "core doctor mpi nccl?");
  CHECK(examined(false) == "doctor");
}

TEST_CASE("parts: a job may use NCCL unless it has one rank, or HORA_BACKENDS rules it out") {
  CHECK(may_use_nccl(job_of(2), {}));
  CHECK_FALSE(may_use_nccl(job_of(1), {}));
  const auto with = [](const char* list) {
    return may_use_nccl(job_of(2), {{"HORA_BACKENDS", list}});
  };
  CHECK(with(""));
  CHECK(with("NCCL, gloo"));
  CHECK(with("-mpi"));
  CHECK_FALSE(with("gloo,shm"));
  CHECK_FALSE(with("-nccl"));
  CHECK_FALSE(with("-mpi,-nccl"));
  JobSpec spec = job_of(2);
  spec.variables = {{"HORA_BACKENDS", "-nccl"}};
  CHECK_FALSE(may_use_nccl(spec, {}));
  spec.knobs.push_back({"HORA_BACKENDS", "gloo"});
  CHECK_FALSE(may_use_nccl(spec, {{"HORA_BACKENDS", "nccl"}}));
}

}  // namespace hora::launcher
