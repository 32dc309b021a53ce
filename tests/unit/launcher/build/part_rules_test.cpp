// SPDX-License-Identifier: Apache-2.0
#include "launcher/build/part_rules.h"

#include <string>

#include "tests/support/catch.h"

namespace hora::launcher {
namespace {

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
  for (const char* part : {"core", "doctor", "gloo", "mpi", "nccl", "pmi", "tls", "tools"}) {
    const Shipping how = shipping_for_job(part, spec, environment);
    if (how == Shipping::kNo) continue;
    text += (text.empty() ? "" : " ") + std::string(part) + (how == Shipping::kToGpus ? "?" : "");
  }
  return text;
}

std::string examined(bool with_runtime) {
  std::string text;
  for (const char* part : {"core", "doctor", "gloo", "mpi", "nccl", "pmi", "tls", "tools"}) {
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
  SECTION("the launcher's environment names a backend") {
    CHECK(shipped(spec, {{"HORA_BACKENDS", "nccl,MPI"}}) == "core mpi nccl");
    CHECK(shipped(spec, {{"OTHER", "nccl,mpi"}}) == "core nccl?");
  }
}

TEST_CASE("parts: Gloo goes along where somebody asks for it, or refuses what is better") {
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

TEST_CASE("parts: a part without a rule goes to everybody") {
  CHECK(shipping_for_job("news", job_of(1), {}) == Shipping::kYes);
  CHECK(shipping_for_doctor("news", true) == Shipping::kYes);
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
