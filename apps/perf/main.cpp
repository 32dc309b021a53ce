// SPDX-License-Identifier: Apache-2.0
// hora-perf measures the collectives of the runtime on the ranks of a job.
#include <cstdio>
#include <string_view>

#include "apps/perf/bench.h"
#include "apps/perf/plot_command.h"

namespace {

using namespace hora::perf;

void say(const std::string& text) {
  if (hora_rank() != 0) return;
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

int run(const Options& options) {
  Report report;
  report.options = options;
  report.version = hora_version();
  report.ranks = hora_size();
  // Local rank 0 exists once on each host.
  report.hosts = static_cast<int>(sum_over_ranks(hora_local_rank() == 0 ? 1 : 0));
  for (const char* id : {"self", "shm", "tcp", "gloo", "mpi", "nccl"}) {
    if (hora_backend_enabled(id) != 0) report.backends.emplace_back(id);
  }
  const bool json = options.format == Format::kJson;
  if (!json) say(format_head(report));
  for (std::int64_t bytes : options.sizes) {
    report.rows.push_back(measure(options, bytes));
    // Rows appear as they are measured, except in JSON, which needs the whole.
    if (!json) say(format_row(report, report.rows.back()));
  }
  if (json) say(format_json(report));
  return report.ok() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  // Plotting needs no job.
  if (argc > 1 && std::string_view(argv[1]) == "plot") return run_plot({argv + 2, argv + argc});
  Options options;
  const std::string problem = parse_options({argv + 1, argv + argc}, options);
  if (!problem.empty()) {
    std::fprintf(stderr, "hora-perf: %s\nrun 'hora-perf --help' for usage\n", problem.c_str());
    return 2;
  }
  if (options.help) {
    std::fputs(std::string(usage()).c_str(), stdout);
    return 0;
  }
  if (hora_init(nullptr) != HORA_OK) {
    std::fprintf(stderr, "hora-perf: %s\n", hora_last_error());
    return 1;
  }
  int code = 1;
  if (options.root >= hora_size()) {
    std::fprintf(stderr, "hora-perf: --root %d is not below the number of ranks, %d\n",
                 options.root, hora_size());
    code = 2;
  } else {
    // The other ranks fail as well when one leaves, so no rank hangs.
    try {
      code = run(options);
    } catch (const Failure& failure) {
      std::fprintf(stderr, "hora-perf: rank %d: %s\n", hora_rank(), failure.text.c_str());
    }
  }
  hora_shutdown();
  return code;
}
