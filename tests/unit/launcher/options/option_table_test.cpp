// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/option_table.h"

#include <map>

#include "tests/support/catch.h"

namespace hora::launcher {
namespace {

TEST_CASE("Every option of horovodrun 0.28 is known") {
  for (const std::string_view name : {"-h",
                                      "--help",
                                      "-v",
                                      "--version",
                                      "-np",
                                      "--num-proc",
                                      "-cb",
                                      "--check-build",
                                      "--disable-cache",
                                      "--start-timeout",
                                      "--network-interfaces",
                                      "--network-interface",
                                      "--output-filename",
                                      "--verbose",
                                      "--config-file",
                                      "-p",
                                      "--ssh-port",
                                      "-i",
                                      "--ssh-identity-file",
                                      "--fusion-threshold-mb",
                                      "--cycle-time-ms",
                                      "--cache-capacity",
                                      "--hierarchical-allreduce",
                                      "--no-hierarchical-allreduce",
                                      "--hierarchical-allgather",
                                      "--no-hierarchical-allgather",
                                      "--torus-allreduce",
                                      "--no-torus-allreduce",
                                      "--autotune",
                                      "--no-autotune",
                                      "--autotune-log-file",
                                      "--autotune-warmup-samples",
                                      "--autotune-steps-per-sample",
                                      "--autotune-bayes-opt-max-samples",
                                      "--autotune-gaussian-process-noise",
                                      "--min-np",
                                      "--min-num-proc",
                                      "--max-np",
                                      "--max-num-proc",
                                      "--slots-per-host",
                                      "--elastic-timeout",
                                      "--reset-limit",
                                      "--blacklist-cooldown-range",
                                      "--timeline-filename",
                                      "--timeline-mark-cycles",
                                      "--no-timeline-mark-cycles",
                                      "--no-stall-check",
                                      "--stall-check",
                                      "--stall-check-warning-time-seconds",
                                      "--stall-check-shutdown-time-seconds",
                                      "--mpi-threads-disable",
                                      "--no-mpi-threads-disable",
                                      "--mpi-args",
                                      "--tcp",
                                      "--binding-args",
                                      "--num-nccl-streams",
                                      "--thread-affinity",
                                      "--gloo-timeout-seconds",
                                      "--log-level",
                                      "--log-with-timestamp",
                                      "--log-without-timestamp",
                                      "-prefix-timestamp",
                                      "--prefix-output-with-timestamp",
                                      "--log-hide-timestamp",
                                      "--no-log-hide-timestamp",
                                      "-H",
                                      "--hosts",
                                      "-hostfile",
                                      "--hostfile",
                                      "--host-discovery-script",
                                      "--gloo",
                                      "--mpi",
                                      "--jsrun"}) {
    INFO(name);
    CHECK(find_option(name, kVerbLaunch) != nullptr);
  }
}

TEST_CASE("No name belongs to two options") {
  std::map<std::pair<std::string_view, unsigned>, int> seen;
  for (const OptionRow& row : option_table()) {
    for (const std::string_view name : names_of(row)) {
      for (const unsigned verb : {kVerbLaunch, kVerbCache, kVerbRendezvous, kVerbKubernetes}) {
        if ((row.verbs & verb) != 0) CHECK(++seen[{name, verb}] == 1);
      }
    }
    CHECK_FALSE(row.help.empty());
    CHECK(row.takes_value() == !row.metavar.empty());
  }
}

}  // namespace
}  // namespace hora::launcher
