// SPDX-License-Identifier: Apache-2.0
// Of many ranks, the table has those that took most memory: its reader looks for what has run out,
// or will with a larger job. The sums are of all ranks.
#include "launcher/report/resource_usage.h"

#include <algorithm>
#include <cstdio>

#include "launcher/failures/rank_exit_text.h"
#include "launcher/text/text.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

constexpr std::size_t kMostUsageRows = 16;
constexpr std::size_t kLongestName = 64;
constexpr std::size_t kMostDelays = 10;
constexpr double kLeastDelay = 0.01;  // of the time

std::string how(const RankExit& exit) {
  std::string text;
  if (exit.stage != SpawnStage::kNone) {
    text = "not started";
  } else if (exit.signal != 0) {
    text = signal_name(exit.signal);
  } else {
    text = "exit code " + std::to_string(exit.exit_code);
  }
  return exit.terminated_by_us ? text + ", ended by us" : text;
}

std::map<int, std::string> hosts_by_rank(const std::vector<HostPlan>& hosts) {
  std::map<int, std::string> names;
  for (const HostPlan& host : hosts) {
    for (const Slot& slot : host.slots) names[slot.rank] = host.host.name;
  }
  return names;
}

std::string seconds(double us) {
  char text[64];
  std::snprintf(text, sizeof text, "%.2f s", us / 1e6);
  return text;
}

}  // namespace

std::string bytes_text(std::int64_t bytes) {
  char text[32];
  const double value = static_cast<double>(bytes);
  if (bytes >= std::int64_t{1} << 30) {
    std::snprintf(text, sizeof text, "%.1f GiB", value / (1 << 30));
  } else {
    std::snprintf(text, sizeof text, "%.1f MiB", value / (1 << 20));
  }
  return text;
}

std::string number_ranges(const std::vector<int>& numbers) {
  std::string out;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t end = i;
    while (end + 1 < numbers.size() && numbers[end + 1] == numbers[end] + 1) ++end;
    if (!out.empty()) out += ",";
    out += std::to_string(numbers[i]);
    if (end > i) out += (end == i + 1 ? "," : "-") + std::to_string(numbers[end]);
    i = end + 1;
  }
  return out;
}

std::string exit_table(const std::map<int, RankExit>& exits) {
  std::vector<std::pair<std::string, std::vector<int>>> groups;
  for (const auto& [rank, exit] : exits) {
    const std::string text = how(exit);
    auto group =
        std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == text; });
    if (group == groups.end()) group = groups.insert(groups.end(), {text, {}});
    group->second.push_back(rank);
  }
  std::string out;
  for (const auto& [text, ranks] : groups) {
    out += "  " + text + (ranks.size() == 1 ? ": rank " : ": ranks ") + number_ranges(ranks) + "\n";
  }
  return out;
}

std::string resource_usage_text(const std::map<int, RankExit>& exits,
                                const std::vector<HostPlan>& hosts) {
  const auto names = hosts_by_rank(hosts);
  std::vector<const RankExit*> rows;
  double user = 0;
  double system = 0;
  for (const auto& [rank, exit] : exits) {
    rows.push_back(&exit);
    user += static_cast<double>(exit.user_time_us);
    system += static_cast<double>(exit.system_time_us);
  }
  const std::size_t all = rows.size();
  if (all > kMostUsageRows) {
    std::stable_sort(rows.begin(), rows.end(), [](const RankExit* a, const RankExit* b) {
      return a->max_rss_bytes > b->max_rss_bytes;
    });
    rows.resize(kMostUsageRows);
  }
  std::string out = "  rank   host              peak memory  user        system      ended by\n";
  for (const RankExit* exit : rows) {
    const auto name = names.find(exit->rank);
    out += "  " + column(std::to_string(exit->rank), 7) +
           column(shortened(name == names.end() ? "?" : name->second, kLongestName), 18) +
           column(bytes_text(exit->max_rss_bytes), 13) +
           column(seconds(static_cast<double>(exit->user_time_us)), 12) +
           column(seconds(static_cast<double>(exit->system_time_us)), 12) + how(*exit) + "\n";
  }
  if (all > rows.size()) {
    out += "  and " + counted(all - rows.size(), "rank") + " that took less memory\n";
  }
  return out + "  all    user " + seconds(user) + ", system " + seconds(system) + "\n";
}

// A host that was lost has not said how its ranks ended, and they are not among these.
std::vector<RankDelay> rank_delays(const std::map<int, RankExit>& exits,
                                   const std::vector<HostPlan>& hosts,
                                   std::chrono::milliseconds ran) {
  std::int64_t longest_wait_us = 0;
  for (const auto& [rank, exit] : exits)
    longest_wait_us = std::max(longest_wait_us, exit.counters.waited_us);
  const double ran_us = 1e3 * static_cast<double>(std::max<std::int64_t>(ran.count(), 1));
  auto names = hosts_by_rank(hosts);
  std::vector<RankDelay> delays;
  for (const auto& [rank, exit] : exits) {
    const std::int64_t late_us = longest_wait_us - exit.counters.waited_us;
    const double share = std::min(static_cast<double>(late_us) / ran_us, 1.0);
    if (!exit.counters.uses_runtime || share < kLeastDelay) continue;
    delays.push_back({rank, names[rank], late_us / 1000, share});
  }
  std::stable_sort(delays.begin(), delays.end(),
                   [](const RankDelay& a, const RankDelay& b) { return a.late_ms > b.late_ms; });
  delays.resize(std::min(delays.size(), kMostDelays));
  return delays;
}

std::string delay_text(const RankDelay& delay) {
  char figures[96];
  std::snprintf(figures, sizeof figures, ": the others waited %.1f s for it, %.0f%% of the time",
                static_cast<double>(delay.late_ms) / 1e3, 100 * delay.share);
  return "rank " + std::to_string(delay.rank) + " on " + delay.host + figures;
}

}  // namespace hora::launcher
