// SPDX-License-Identifier: Apache-2.0
// Judges what libraries did in the self-tests.  [pure]
#include <algorithm>

#include "launcher/doctor/findings.h"
#include "launcher/failures/host_failure.h"

namespace hora::launcher::doctor {

namespace {

constexpr std::string_view kReachingLauncher =
    // apps/doctor/selftests.cpp names the stage so.
    "reaching the launcher";

// The meaning of a failed self-test, by its name in the document.
struct Row {
  std::string_view selftest;
  std::string_view code;
  std::string_view subject;
  std::string_view why;
  std::string_view fix;
};

constexpr Row kRows[] = {
    {"alone", "D_LIBRARY", "libhora", "every rank on this host will fail in the same way",
     "if it is incomplete, run horarun cache clean -H HOST; else see what the loader lacks: ldd "
     "libhora.so"},
    {"shared_memory", "D_SHARED_MEMORY", "the ranks of this host over shared memory",
     "ranks of one host exchange data in /dev/shm; without it they fall back to TCP, or fail",
     "check /dev/shm (df /dev/shm; ls -l /dev/shm) and memory limits; HORA_BACKENDS=-shm disables "
     "the backend"},
    {"tcp", "D_LOOPBACK", "two ranks of this host over TCP",
     "ranks exchange data over TCP; here it does not even work within the host",
     "check that the loopback device is up (ip link set lo up) and that no firewall filters "
     "127.0.0.1"},
    {"mpi", "D_MPI", "MPI", "HOROVOD_CPU_OPERATIONS=mpi, --mpi and mpi4py will fail on this host",
     "try it there without Hora: mpirun -np 1 true; a library that hangs often probes a network "
     "(OMPI_MCA_btl=self,tcp)"},
    {"nccl", "D_NCCL", "NCCL", "every rank that has a GPU on this host will fail in the same way",
     "NCCL_DEBUG=INFO shows what it does; check that driver, CUDA and NCCL match"},
};

std::string with_host(std::string text, const std::string& host) {
  const std::size_t at = text.find("HOST");
  if (at != std::string::npos) text.replace(at, 4, host);
  return text;
}

std::string words_of(const Json& selftest) {
  const std::string stage = text_in(selftest, "stage");
  return (stage.empty() ? "" : stage + ": ") + text_in(selftest, "error");
}

// Parts of the self-test that did not run, or work in another way: not failures.
void of_nccl(const HostExamination& host, std::vector<Finding>& out) {
  const auto warn = [&](std::string what, const char* why, const char* fix) {
    out.push_back({Severity::kWarning, "D_NCCL", {host.name}, std::move(what), why, fix, {}});
  };
  const Json& gpus = member(host.machine, "gpus.devices");
  const Json& absent = member(host.selftests, "nccl.absent");
  const Json& notes = member(host.selftests, "nccl.notes");
  const Json& copies = member(host.selftests, "nccl_copies");
  if (gpus.is_number_integer() && gpus.get<int>() > 0 && absent.is_string()) {
    warn(gpus.dump() + " GPUs, and NCCL cannot use them: " + absent.get<std::string>(),
         "tensors of GPUs cannot be reduced",
         "nvidia-smi must work there; install NCCL or a framework that brings it");
  }
  for (const Json& note : notes.is_array() ? notes : Json::array()) {
    if (!note.is_string()) continue;
    warn("NCCL works, but " + note.get<std::string>(),
         "steps with many small tensors take longer, and so do averages over a number of ranks "
         "not a power of two",
         "a driver for CUDA 11 or newer with its PTX compiler, libnvidia-ptxjitcompiler.so.1");
  }
  for (const Json& copy : copies.is_array() ? copies : Json::array()) {
    if (!copy.contains("error")) continue;
    warn(text_in(copy, "path") + " does not work: " + words_of(copy),
         "a framework that loads it will fail on this host",
         "reinstall the package that brought it, or remove it");
  }
}

void of_one_host(const HostExamination& host, std::vector<Finding>& out) {
  const Json& selftests = host.selftests;
  for (const Row& row : kRows) {
    const Json& selftest = member(selftests, row.selftest);
    if (!selftest.is_object() || !selftest.contains("error")) continue;
    // Not every user needs MPI; those who do read warnings as well.
    const Severity severity = row.selftest == "mpi" ? Severity::kWarning : Severity::kError;
    out.push_back({severity,
                   std::string(row.code),
                   {host.name},
                   std::string(row.subject) + " failed: " + words_of(selftest),
                   std::string(row.why),
                   with_host(std::string(row.fix), host.name),
                   {}});
  }
}

// Names the hosts at fault if they are known, else all hosts that failed.
void of_all_hosts(const Json& world, std::vector<Finding>& out) {
  constexpr std::string_view kWhy =
      "ranks connect to the launcher and then to each other, on ports that the system chooses; a "
      "job would fail or hang in the same way";
  constexpr std::string_view kFix =
      "allow TCP between the hosts and to the launcher's machine, or select a network that works "
      "with --network-interfaces";
  const auto add = [&](std::vector<std::string> hosts, std::string what) {
    out.push_back({Severity::kError,
                   "D_WORLD",
                   std::move(hosts),
                   std::move(what),
                   std::string(kWhy),
                   std::string(kFix),
                   {}});
  };
  const Json& error = member(world, "error");
  if (error.is_string()) return add({}, "no job of all hosts: " + error.get<std::string>());
  const Json& failed = member(world, "failed");
  if (!failed.is_object()) return;
  // Hosts that cannot reach the launcher explain why others waited.
  bool reported = false;
  for (const auto& [host, selftest] : failed.items()) {
    if (text_in(selftest, "stage") != kReachingLauncher) continue;
    reported = true;
    add({host}, "it cannot reach the launcher's machine: " + text_in(selftest, "error"));
  }
  if (reported) return;
  const Json& missing = member(world, "missing");
  if (missing.is_array() && !missing.empty()) {
    std::vector<std::string> hosts;
    for (const Json& host : missing) {
      const bool known =
          std::find(hosts.begin(), hosts.end(), host.get<std::string>()) != hosts.end();
      if (!known) hosts.push_back(host.get<std::string>());
    }
    return add(hosts, "it did not join the other hosts in a job of all hosts");
  }
  std::vector<std::string> hosts;
  for (const auto& item : failed.items()) hosts.push_back(item.key());
  add(hosts, "a job of all hosts failed; " + hosts.front() + ": " + words_of(*failed.begin()));
}

}  // namespace

bool all_routes_work(const Examination& examination) {
  for (const HostExamination& host : examination.hosts) {
    for (const auto& [peer, answer] : host.peers) {
      if (answer.contains("error")) return false;
    }
  }
  return true;
}

std::vector<Finding> selftest_findings(const Examination& examination) {
  std::vector<Finding> out;
  for (const HostExamination& host : examination.hosts) {
    // Where the runtime cannot be loaded its self-tests say nothing of the libraries that they try.
    const bool loads =
        !host.hello ||
        !why_runtime_does_not_fit(host.hello->c_library, examination.least_glibc_for(*host.hello));
    if (host.failure || !loads) continue;
    of_one_host(host, out);
    of_nccl(host, out);
  }
  of_all_hosts(examination.world, out);
  return out;
}

}  // namespace hora::launcher::doctor
