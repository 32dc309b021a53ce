// SPDX-License-Identifier: Apache-2.0
// In a job of many ranks nearly all of them have the same stack. The report shows each stack once,
// with its ranks, and the rarest first: its rank is the one that the others wait for.
#include "launcher/report/hang_report_text.h"

#include <algorithm>
#include <cstdio>

#include "launcher/report/resource_usage.h"
#include "launcher/report/waiting_ranks.h"
#include "launcher/text/text.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

constexpr std::size_t kMostRows = 64;
constexpr std::size_t kMostStacks = 16;
constexpr std::size_t kLongestName = 64;

std::string table(const std::vector<RankStanding>& standings, const std::vector<HostPlan>& hosts) {
  std::string out =
      "  rank   host             pid      CPU        threads  program          state\n";
  std::size_t rows = 0;
  for (const RankStanding& standing : standings) {
    const ProcessStacks& process = standing.process;
    // A rank's own children (data loaders, a tokenizer) have stacks below, but no row here.
    if (!process.leader) continue;
    if (++rows > kMostRows) continue;
    char cpu[32];
    std::snprintf(cpu, sizeof cpu, "%.2f", static_cast<double>(process.cpu_ms) / 1000);
    out += "  " + column(std::to_string(process.rank), 7) +
           column(shortened(planned_host_name(hosts, standing.host), kLongestName), 17) +
           column(std::to_string(process.pid), 9) + column(cpu, 11) +
           column(std::to_string(process.threads), 9) +
           column(shortened(process.program, kLongestName), 17) + process.state + "\n";
  }
  if (rows > kMostRows) out += "  and " + std::to_string(rows - kMostRows) + " more ranks\n";
  return out;
}

// Native frames differ between ranks that poll in one and the same wait: those of Python show which
// ranks are equal, where there are any.
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
  int others = 0;            // processes that are not ranks themselves
  std::vector<int> parents;  // their ranks, each once and in order
};

std::string ranks_text(const std::vector<int>& ranks) {
  return (ranks.size() == 1 ? "rank " : "ranks ") + number_ranges(ranks);
}

std::string indented(const std::string& text) {
  std::string out;
  for (const std::string_view line : split(text, '\n')) {
    if (!trim(line).empty()) out += "    " + std::string(line) + "\n";
  }
  return out;
}

// "ranks 0,2, 3 child processes of ranks 0,2:" and how they stand. A child (a data loader, a
// tokenizer) is of use only with the rank that it works for.
std::string text_of(const Group& group) {
  std::string out = "  ";
  if (!group.ranks.empty()) out += ranks_text(group.ranks);
  if (group.others > 0) {
    out += (group.ranks.empty() ? "" : ", ") + counted(group.others, "child process") + " of " +
           ranks_text(group.parents);
  }
  if (!group.alike) out += " (native frames of the first)";
  return out + ":\n" + indented(group.stacks);
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
    if (group == groups.end())
      group = groups.insert(groups.end(), Group{key, stacks, true, {}, 0, {}});
    group->alike &= group->stacks == stacks;
    if (process.leader) {
      group->ranks.push_back(process.rank);
    } else {
      ++group->others;
      // Standings are in the order of ranks.
      std::vector<int>& parents = group->parents;
      if (parents.empty() || parents.back() != process.rank) parents.push_back(process.rank);
    }
  }
  // The rank with the rarest stack is the one that the others wait for.
  std::stable_sort(groups.begin(), groups.end(), [](const Group& a, const Group& b) {
    // Groups of child processes alone come last.
    return (a.ranks.empty() ? 1'000'000 : static_cast<int>(a.ranks.size())) <
           (b.ranks.empty() ? 1'000'000 : static_cast<int>(b.ranks.size()));
  });
  for (std::size_t i = 0; i < groups.size() && i < kMostStacks; ++i) out += text_of(groups[i]);
  if (groups.size() > kMostStacks) {
    out += "  and " + counted(groups.size() - kMostStacks, "other stack") + "\n";
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
