// SPDX-License-Identifier: Apache-2.0
// A few reads of /proc and one of the flight record for each rank.
#include "launcher/agent/rank_samples.h"

#include <algorithm>

namespace hora::launcher {

namespace {

constexpr int kDeepest = 100;  // children of children

void add_tree(pid_t pid, int deepest, ProcessUsage& sum) {
  const auto usage = read_usage(pid);
  if (!usage) return;
  sum.cpu_ms += usage->cpu_ms;
  sum.rss_bytes += usage->rss_bytes;
  if (deepest == 0) return;
  for (const pid_t child : list_children(pid).value_or(std::vector<pid_t>())) {
    add_tree(child, deepest - 1, sum);
  }
}

}  // namespace

ProcessUsage usage_of_tree(pid_t pid) {
  ProcessUsage sum;
  add_tree(pid, kDeepest, sum);
  return sum;
}

std::vector<RankSample> take_samples(const std::vector<RankProcess>& living,
                                     const FlightRecords& records, const OutputPump& output) {
  std::vector<RankSample> samples;
  for (const auto& [rank, pid] : living) {
    RankSample& sample = samples.emplace_back();
    sample.rank = rank;
    const ProcessUsage usage = usage_of_tree(pid);
    sample.cpu_ms = std::min(usage.cpu_ms, kLongestMs);
    sample.rss_bytes = std::min(usage.rss_bytes, kMostBytes);
    sample.counters = records.counters_of(rank);
    sample.last_line = output.last_line(rank);
  }
  return samples;
}

}  // namespace hora::launcher
