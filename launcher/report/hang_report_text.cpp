// SPDX-License-Identifier: Apache-2.0
// In a job of many ranks nearly all of them stand in the same place. The report shows each place
// once, with its ranks, and the rarest place first: there stands the rank that the others wait for.
#include "launcher/report/hang_report_text.h"

#include <algorithm>
#include <cstdio>

#include "launcher/report/resource_usage.h"
#include "launcher/report/waiting_ranks.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

constexpr std::size_t kMostRows = 64;
constexpr std::size_t kMostStacks = 16;

std::string table(const std::vector<RankStanding>& standings, const std::vector<HostPlan>& hosts) {
  std::string out =
      "  rank   host             pid      CPU        threads  program          state\n";
  std::size_t rows = 0;
  for (const RankStanding& standing : standings) {
    const ProcessStacks& process = standing.process;
    // A rank's own children (data loaders, a tokenizer) have stacks below, but no row here.
    if (!process.leader) continue;
    if (++rows > kMostRows) continue;
    char line[200];
    std::snprintf(line, sizeof line, "  %-6d %-16s %-8lld %-10.2f %-8d %-16s ", process.rank,
                  planned_host_name(hosts, standing.host).c_str(),
                  static_cast<long long>(process.pid), static_cast<double>(process.cpu_ms) / 1000,
                  process.threads, process.program.c_str());
    out += line + process.state + "\n";
  }
  if (rows > kMostRows) out += "  and " + std::to_string(rows - kMostRows) + " more ranks\n";
  return out;
}

// Native frames differ between ranks that poll in one and the same wait: those of Python tell who
// stands alike, where there are any.
std::string python_part(const std::string& stacks) {
  std::string out;
  bool fresh = true;
  for (const std::string_view line : split(stacks, '\n')) {
    const bool frame = line.substr(0, 7) == "  File ";
    if (frame) out += (fresh ? "\n" : "") + std::string(line) + "\n";
    fresh = !frame;
  }
  return out.empty() ? stacks : out;
}

struct Group {
  std::string key;
  std::string stacks;  // of the first of them
  bool alike = true;   // the others' have the same native frames
  std::vector<int> ranks;
  int others = 0;  // processes that are not ranks themselves
};

std::string indented(const std::string& text) {
  std::string out;
  for (const std::string_view line : split(text, '\n')) {
    if (!trim(line).empty()) out += "    " + std::string(line) + "\n";
  }
  return out;
}

}  // namespace

std::string normal_stacks(const std::string& stacks) {
  std::string out;
  for (std::string_view line : split(stacks, '\n')) {
    // "Current thread 0x00007f... (most recent call first):", "Thread 0x... [name] (most ...):"
    // The thread's number differs in every process; without it equal stacks compare equal.
    const std::size_t id = line.find("hread 0x");
    if (id != std::string_view::npos) {
      const std::size_t end = line.find(' ', id + 6);
      out += std::string(line.substr(0, id + 5)) +
             (end == std::string_view::npos ? "" : std::string(line.substr(end))) + "\n";
    } else {
      out += std::string(line) + "\n";
    }
  }
  while (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

std::string hang_report_text(const std::string& why, std::vector<RankStanding> standings,
                             const std::vector<int>& missing, const std::vector<HostPlan>& hosts) {
  std::stable_sort(
      standings.begin(), standings.end(),
      [](const RankStanding& a, const RankStanding& b) { return a.process.rank < b.process.rank; });
  std::string out = "where the ranks stand (" + why + "):\n" + table(standings, hosts);
  for (const int host : missing) {
    out += "  host " + planned_host_name(hosts, host) + " did not answer\n";
  }
  out += waiting_table(find_waiting(standings, missing, hosts));
  std::vector<Group> groups;
  std::vector<int> silent;
  for (const RankStanding& standing : standings) {
    const ProcessStacks& process = standing.process;
    if (process.stacks.empty()) {
      if (process.leader) silent.push_back(process.rank);
      continue;
    }
    const std::string stacks = normal_stacks(process.stacks);
    const std::string key = python_part(stacks);
    auto group =
        std::find_if(groups.begin(), groups.end(), [&](const Group& g) { return g.key == key; });
    if (group == groups.end()) group = groups.insert(groups.end(), Group{key, stacks, true, {}, 0});
    group->alike &= group->stacks == stacks;
    if (process.leader) {
      group->ranks.push_back(process.rank);
    } else {
      ++group->others;
    }
  }
  // Who stands where few others stand is who is waited for.
  std::stable_sort(groups.begin(), groups.end(), [](const Group& a, const Group& b) {
    // Groups of child processes alone come last.
    return (a.ranks.empty() ? 1'000'000 : static_cast<int>(a.ranks.size())) <
           (b.ranks.empty() ? 1'000'000 : static_cast<int>(b.ranks.size()));
  });
  for (std::size_t i = 0; i < groups.size() && i < kMostStacks; ++i) {
    const Group& group = groups[i];
    out += "  ";
    if (!group.ranks.empty()) {
      out += (group.ranks.size() == 1 ? "rank " : "ranks ") + number_ranges(group.ranks);
    }
    if (group.others > 0) {
      out += (group.ranks.empty() ? "" : ", ") + std::to_string(group.others) + " child processes";
    }
    if (!group.alike) out += " (native frames of the first)";
    out += ":\n" + indented(group.stacks);
  }
  if (groups.size() > kMostStacks) {
    out += "  and " + std::to_string(groups.size() - kMostStacks) + " other stacks\n";
  }
  if (!silent.empty()) {
    out += std::string("  no stacks from ") + (silent.size() == 1 ? "rank " : "ranks ") +
           number_ranges(silent) +
           (silent.size() == 1 ? ": it is stopped, or runs" : ": they are stopped, or run") +
           " neither Python nor Hora's runtime\n";
  }
  return out;
}

}  // namespace hora::launcher
