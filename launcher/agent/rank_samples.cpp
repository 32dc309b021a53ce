// SPDX-License-Identifier: Apache-2.0
// A few reads of /proc and one of the flight record for each rank.
#include "launcher/agent/rank_samples.h"

#include <unistd.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "launcher/process/process_table.h"
#include "rendezvous/base/text.h"
#include "rendezvous/os/files.h"

namespace hora::launcher {

namespace {

constexpr int kDeepest = 100;  // children of children

// Fields of /proc/PID/stat (proc(5) counts from 1), behind the program's name.
constexpr std::size_t kState = 3;
constexpr std::size_t kTimes[] = {14, 15, 16, 17};  // user, system, and those of its children
constexpr std::size_t kRss = 24;

void add_tree(pid_t pid, int deepest, TreeUsage& usage) {
  // The process may be gone by now.
  const auto stat = os::read_file("/proc/" + std::to_string(pid) + "/stat");
  if (!stat) return;
  // The name may contain ')' and blanks, so search from the right.
  const std::size_t close = stat->rfind(')');
  if (close == std::string::npos) return;
  const auto fields = split(trim(std::string_view(*stat).substr(close + 1)), ' ');
  if (fields.size() <= kRss - kState) return;
  const auto number = [&](std::size_t field) {
    return std::max<std::int64_t>(parse_int<std::int64_t>(fields[field - kState]).value_or(0), 0);
  };
  std::int64_t ticks = 0;
  for (const std::size_t field : kTimes) ticks += number(field);
  usage.cpu_ms += ticks * 1000 / ::sysconf(_SC_CLK_TCK);
  usage.rss_bytes += number(kRss) * ::sysconf(_SC_PAGESIZE);
  if (deepest == 0) return;
  for (const pid_t child : list_children(pid).value_or(std::vector<pid_t>())) {
    add_tree(child, deepest - 1, usage);
  }
}

}  // namespace

TreeUsage usage_of_tree(pid_t pid) {
  TreeUsage usage;
  add_tree(pid, kDeepest, usage);
  return usage;
}

std::vector<RankSample> take_samples(const std::vector<RankProcess>& living,
                                     const FlightRecords& records) {
  constexpr std::int64_t kNsPerUs = 1'000;
  constexpr std::int64_t kNsPerMs = 1'000'000;
  std::vector<RankSample> samples;
  for (const auto& [rank, pid] : living) {
    RankSample& sample = samples.emplace_back();
    sample.rank = rank;
    const TreeUsage usage = usage_of_tree(pid);
    sample.cpu_ms = std::min(usage.cpu_ms, kLongestMs);
    sample.rss_bytes = std::min(usage.rss_bytes, kMostBytes);
    const auto counters = records.counters_of(rank);
    if (!counters) continue;
    sample.uses_runtime = true;
    sample.collectives = counters->collectives;
    sample.waited_us = counters->waited_ns / kNsPerUs;
    sample.last_ms = counters->last_ended_ns < 0 ? -1 : counters->last_ended_ns / kNsPerMs;
  }
  return samples;
}

}  // namespace hora::launcher
