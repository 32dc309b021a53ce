// SPDX-License-Identifier: Apache-2.0
// hora-smoke is the worker of `horarun --smoke`. Every rank checks every collective, and rank 0
// prints the results of all. Exit code 0: success on all ranks; 1: a failure; 2: wrong usage.
#include <chrono>
#include <cstdio>
#include <cstring>

#include "apps/smoke/checks.h"
#include "apps/smoke/measure.h"
#include "apps/smoke/report.h"
#include "apps/smoke/session.h"
#include "rendezvous/os/limits.h"

namespace {

using namespace hora::smoke;

int count_hosts() {
  // Local rank 0 exists once on each host.
  return static_cast<int>(agree_on_sum(hora_local_rank() == 0 ? 1 : 0));
}

// Adds up the failures of all ranks, and collects the first text of each rank that has one.
void merge(Report& report) {
  std::string mine;
  for (CheckResult& check : report.checks) {
    if (mine.empty()) mine = check.first_failure;
    check.failures = static_cast<int>(agree_on_sum(check.failures));
  }
  const std::vector<std::string> texts = collect_texts(mine);
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    if (!texts[rank].empty()) {
      report.first_failures.emplace_back(static_cast<int>(rank), texts[rank]);
    }
  }
}

Report examine() {
  const auto start = std::chrono::steady_clock::now();
  Report report;
  report.version = hora_version();
  report.ranks = hora_size();
  report.hosts = count_hosts();
  for (const char* id : {"self", "shm", "tcp", "gloo", "mpi", "nccl"}) {
    if (hora_backend_enabled(id) != 0) report.backends.emplace_back(id);
  }
  report.checks = check_all();
  merge(report);
  // Figures of a runtime with wrong results mean nothing.
  if (report.ok()) report.timings = measure_all(0.8);
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

}  // namespace

int main(int argc, char** argv) {
  // libhora reports what it gets no memory for; this is about the arrays here.
  hora::os::exit_when_out_of_resources("hora-smoke", 1);
  const bool json = argc == 2 && std::strcmp(argv[1], "--json") == 0;
  if (argc > 2 || (argc == 2 && !json)) {
    std::fprintf(stderr, "usage: horarun [options] hora-smoke [--json]\n");
    return 2;
  }
  if (hora_init(nullptr) != HORA_OK) {
    std::fprintf(stderr, "hora-smoke: %s\n", hora_last_error());
    return 1;
  }
  const Report report = examine();
  if (hora_rank() == 0) {
    const std::string text = json ? format_json(report) : format_table(report);
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
  }
  hora_shutdown();
  return report.ok() ? 0 : 1;
}
