// SPDX-License-Identifier: Apache-2.0
// In a job of many ranks nearly all of them have the same stack. The report shows each stack once,
// with its ranks, and the rarest first: its rank is the one that the others wait for.
#include "launcher/report/hang_report_text.h"

#include <algorithm>
#include <cstdio>

#include "launcher/report/fitted_text.h"
#include "launcher/report/resource_usage.h"
#include "launcher/report/waiting_ranks.h"
#include "launcher/text/text.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

constexpr std::size_t kMostRows = 64;
constexpr std::size_t kShownStacks = 16;
constexpr std::size_t kLongestName = 64;

std::string rank_table(const std::vector<RankStanding>& standings,
                       const std::vector<HostPlan>& hosts, std::size_t width) {
  const std::vector<TableColumn> columns = {{7}, {17, 1}, {9, 2}, {11}, {9, 3}, {17, 1}, {0, 1}};
  std::vector<std::vector<std::string>> cells = {
      {"rank", "host", "pid", "CPU", "threads", "program", "state"}};
  std::size_t rows = 0;
  for (const RankStanding& standing : standings) {
    const ProcessStacks& process = standing.process;
    // A rank's own children (data loaders, a tokenizer) have stacks below, but no row here.
    if (!process.leader) continue;
    if (++rows > kMostRows) continue;
    char cpu[32];
    std::snprintf(cpu, sizeof cpu, "%.2f", static_cast<double>(process.cpu_ms) / 1000);
    cells.push_back({std::to_string(process.rank),
                     shortened(planned_host_name(hosts, standing.host), kLongestName),
                     std::to_string(process.pid), cpu, std::to_string(process.threads),
                     shortened(process.program, kLongestName), process.state});
  }
  std::string out = fitted_table(columns, std::move(cells), width);
  if (rows > kMostRows) out += "  and " + std::to_string(rows - kMostRows) + " more ranks\n";
  return out;
}

bool is_own_frame(std::string_view line) {
  for (const std::string_view part :
       {"(libhora", "(libffi", "(_ctypes", " at libhora", " at libffi", " at _ctypes",
        "/python/hora/", "/python/horovod/", "-packages/hora/", "-packages/horovod/"}) {
    if (line.find(part) != std::string_view::npos) return true;
  }
  return false;
}

// The C library's, into which a call of ours may lead.
bool is_system_frame(std::string_view line) {
  return line.starts_with("  at ") && line.find("(libc.so") != std::string_view::npos;
}

std::string folded(std::size_t frames, std::string_view outermost) {
  const std::size_t in = outermost.rfind(" in ");
  const bool is_python = outermost.starts_with("  File ") && in != std::string_view::npos;
  return "  ... " + counted(static_cast<int>(frames), "frame") + " of Hora" +
         (is_python ? ", from " + std::string(outermost.substr(in + 4)) + "()" : "") + "\n";
}

// Native frames differ between ranks that poll in one and the same wait: those of Python show which
// ranks stand alike, where there are any.
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

// Behind "horarun: ".
std::string title(const std::string& why, std::size_t width) {
  const std::string text = "where the ranks stand (" + why + "):";
  const bool fits = width == 0 || text.size() + 9 <= width;
  return (fits ? text : "where the ranks stand\n  (" + why + "):") + "\n";
}

std::string silent_ranks(const std::vector<int>& ranks, std::size_t width) {
  if (ranks.empty()) return {};
  std::string text =
      "  no stacks from " + ranks_text(ranks) +
      (ranks.size() == 1 ? ": it is stopped, or runs" : ": they are stopped, or run") +
      " neither Python nor Hora's runtime";
  std::string out;
  // In as many rows as it takes: its end says the most.
  while (width > 0 && text.size() > width) {
    const std::size_t blank = text.rfind(' ', width);
    if (blank == std::string::npos || blank < 5) break;
    out += text.substr(0, blank) + "\n";
    text.erase(0, blank).insert(0, 3, ' ');
  }
  return out + text + "\n";
}

std::string indented(const std::string& text, std::size_t width) {
  std::string out;
  for (const std::string_view line : split(text, '\n')) {
    if (!trim(line).empty()) out += fitted_line("    " + std::string(line), width) + "\n";
  }
  return out;
}

// "ranks 0,2, 3 child processes of ranks 0,2:" and how they stand. A child (a data loader, a
// tokenizer) is of use only with the rank that it works for.
std::string text_of(const Group& group, std::size_t width, bool with_own_frames) {
  std::string out = "  ";
  if (!group.ranks.empty()) out += ranks_text(group.ranks);
  if (group.others > 0) {
    out += (group.ranks.empty() ? "" : ", ") + counted(group.others, "child process") + " of " +
           ranks_text(group.parents);
  }
  if (!group.alike) out += " (native frames of the first)";
  const std::string stacks = with_own_frames ? group.stacks : without_own_frames(group.stacks);
  return fitted_line(out, width > 0 ? width - 1 : 0) + ":\n" + indented(stacks, width);
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

std::string without_own_frames(const std::string& stacks) {
  std::string out;
  std::vector<std::string> threads;
  std::size_t system = 0;  // frames of the C library that may be part of the run
  std::size_t own = 0;
  std::string run;  // the frames of the run
  std::string_view last;
  bool skips = false;
  const auto end_run = [&] {
    out += own > 0 ? folded(own + system, last) : run;
    own = system = 0;
    run.clear();
  };
  for (const std::string_view line : split(stacks, '\n')) {
    if (!line.starts_with("  ")) {
      end_run();
      const std::size_t name = line.find("hora-");
      const std::size_t end = line.find(" (most recent");
      skips = name != std::string_view::npos && end != std::string_view::npos && name < end &&
              name > 0 && line[name - 1] == ' ';
      if (skips) {
        threads.emplace_back(line.substr(name, end - name));
      } else if (!line.empty()) {
        out.append(line).append("\n");
      }
      continue;
    }
    if (skips) continue;
    if (is_own_frame(line)) {
      ++own;
      last = line;
    } else if (own == 0 && is_system_frame(line)) {
      ++system;
    } else {
      end_run();
      out.append(line).append("\n");
      continue;
    }
    run.append(line).append("\n");
  }
  end_run();
  if (!threads.empty()) {
    out += "Hora's own threads: " + join(threads, ", ") + "\n";
  }
  return out;
}

std::string hang_report_text(const std::string& why, std::vector<RankStanding> standings,
                             const std::vector<int>& missing, const std::vector<HostPlan>& hosts,
                             std::size_t width, bool with_own_frames) {
  std::stable_sort(
      standings.begin(), standings.end(),
      [](const RankStanding& a, const RankStanding& b) { return a.process.rank < b.process.rank; });
  std::string out = title(why, width) + rank_table(standings, hosts, width);
  for (const int host : missing) {
    out += "  host " + planned_host_name(hosts, host) + " did not answer\n";
  }
  out += waiting_table(find_waiting(standings, missing, hosts), width);
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
  for (std::size_t i = 0; i < groups.size() && i < kShownStacks; ++i) {
    out += text_of(groups[i], width, with_own_frames);
  }
  if (groups.size() > kShownStacks) {
    out += "  and " + counted(groups.size() - kShownStacks, "other stack") + "\n";
  }
  return out + silent_ranks(silent, width);
}

}  // namespace hora::launcher
