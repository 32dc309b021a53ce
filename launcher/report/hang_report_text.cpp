// SPDX-License-Identifier: Apache-2.0
// In a job of many ranks nearly all of them have the same stack. The report shows each stack once,
// with its ranks, and the rarest first: its rank is the one that the others wait for.
#include "launcher/report/hang_report_text.h"

#include <algorithm>
#include <cstdio>
#include <map>

#include "launcher/report/fitted_text.h"
#include "launcher/report/resource_usage.h"
#include "launcher/text/text.h"
#include "rendezvous/base/text.h"
#include "rendezvous/contract/flight_record.h"

namespace hora::launcher {

namespace {

constexpr std::size_t kMostRows = 64;
constexpr std::size_t kShownStacks = 16;
constexpr std::size_t kLongestCell = 64;

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
                     shortened(planned_host_name(hosts, standing.host), kLongestCell),
                     std::to_string(process.pid), cpu, std::to_string(process.threads),
                     shortened(process.program, kLongestCell), process.state});
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

constexpr std::size_t kMostWaitingRows = 32;

using Standings = std::map<int, CollectiveStanding>;  // by rank; of ranks without an answer: empty

std::string seconds(std::int64_t ms) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", static_cast<double>(ms) / 1000);
  return text;
}

// A record has the membership of process sets 0 to 63. In others a rank does not count as a member:
// it is then never called absent.
bool is_member(const CollectiveStanding& standing, std::int64_t process_set) {
  if (process_set == 0) return true;
  return process_set > 0 && process_set < 64 &&
         ((static_cast<std::uint64_t>(standing.process_sets) >> process_set) & 1) != 0;
}

bool is_in(const CollectiveStanding& standing, const CollectiveOperation& operation) {
  std::size_t waiting = 0;
  for (const CollectiveOperation& each : standing.operations) {
    if (!each.running) ++waiting;
    // All ranks have agreed on one that runs: a rank that merely asks for the same name has asked
    // for that of the next step, and does not match.
    if (each.text == operation.text && each.process_set == operation.process_set &&
        (each.running || !operation.running)) {
      return true;
    }
  }
  // Of very many that it has asked for the recorder keeps the newest.
  if (!operation.running) return waiting >= rendezvous::kFlightAsked;
  // It may have done already what others are still in.
  return standing.last == operation.text && standing.last_ended_ms < operation.for_ms;
}

std::vector<int> find_absent(const Standings& all, int rank, const CollectiveOperation& operation) {
  std::vector<int> absent;
  for (const auto& [other, standing] : all) {
    if (other != rank && is_member(standing, operation.process_set) &&
        !is_in(standing, operation)) {
      absent.push_back(other);
    }
  }
  return absent;
}

WaitingRank describe(const Standings& all, int rank, const CollectiveStanding& standing) {
  WaitingRank row;
  row.rank = rank;
  row.for_ms = standing.for_ms;
  if (standing.state == "joining") {
    row.stands_in = "hvd.init(), meeting the others";
    for (const auto& [other, theirs] : all) {
      // A rank that is "joined" already was there: all have met, only this rank's record is a
      // moment older.
      if (other != rank && theirs.state != "joining" && theirs.state != "joined")
        row.waits_for.push_back(other);
    }
    row.all_there = row.waits_for.empty();
  } else if (standing.state.empty()) {
    row.stands_in = "nothing yet: it has not called hvd.init()";
    row.for_ms = 0;
  } else if (standing.state == "left") {
    row.stands_in = "nothing more: it has left the job";
  } else if (!standing.operations.empty()) {
    const CollectiveOperation& oldest = standing.operations.front();
    row.stands_in = oldest.text;
    if (standing.operations.size() > 1) {
      row.stands_in += " (and " + std::to_string(standing.operations.size() - 1) + " more)";
    }
    row.for_ms = oldest.for_ms;
    row.waits_for = find_absent(all, rank, oldest);
    row.all_there = row.waits_for.empty();
  } else if (standing.last.empty()) {
    row.stands_in = "no collective yet";
  } else {
    row.stands_in = "no collective; its last was " + standing.last;
    row.for_ms = standing.last_ended_ms;
  }
  return row;
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

// The records of the ranks are read at different moments: each when the question reaches its host,
// and a rank may go on in between. A rank is called absent from a collective only if nothing in its
// record says that it is in it, has asked for it or has just done it: a wrong accusation costs more
// than a missing one.
std::vector<WaitingRank> find_waiting(const std::vector<RankStanding>& standings,
                                      const std::vector<int>& missing,
                                      const std::vector<HostPlan>& hosts) {
  Standings all;
  bool any = false;
  for (const RankStanding& each : standings) {
    // Children of a rank (data loaders) have no part in collectives.
    if (!each.process.leader) continue;
    all[each.process.rank] = each.process.standing;
    any |= !each.process.standing.state.empty();
  }
  // A job that does not use the runtime, but MPI or torch.distributed: there is nothing to report.
  if (!any) return {};
  std::vector<WaitingRank> rows;
  std::vector<int> silent;
  for (const int host : missing) {
    if (host < 0 || host >= static_cast<int>(hosts.size())) continue;
    for (const Slot& slot : hosts[static_cast<std::size_t>(host)].slots)
      silent.push_back(slot.rank);
  }
  // With no record at all they count as absent from every collective of the whole job.
  for (const int rank : silent) all[rank] = {};
  std::map<int, std::int64_t> behind;
  for (const auto& [rank, standing] : all) {
    WaitingRank row = describe(all, rank, standing);
    if (std::find(silent.begin(), silent.end(), rank) != silent.end()) {
      row.stands_in = "not known: its host did not answer";
    }
    // A rank is as far behind as the rank that has waited for it longest.
    for (const int late : row.waits_for) behind[late] = std::max(behind[late], row.for_ms);
    rows.push_back(std::move(row));
  }
  for (WaitingRank& row : rows) row.behind_ms = behind[row.rank];
  std::stable_sort(rows.begin(), rows.end(),
                   [](const auto& a, const auto& b) { return a.behind_ms > b.behind_ms; });
  return rows;
}

std::string waiting_table(const std::vector<WaitingRank>& ranks, std::size_t width) {
  // In a job of a thousand ranks all but a few stand in the same call: one row for them.
  struct Row {
    WaitingRank first;
    std::vector<int> ranks;
  };
  std::vector<Row> rows;
  for (const WaitingRank& each : ranks) {
    const auto same = std::find_if(rows.begin(), rows.end(), [&](const Row& row) {
      return row.first.stands_in == each.stands_in && row.first.waits_for == each.waits_for &&
             // A rank that others wait for is not hidden among those that are not awaited.
             (row.first.behind_ms > 0) == (each.behind_ms > 0);
    });
    if (same == rows.end()) {
      rows.push_back({each, {each.rank}});
    } else {
      same->ranks.push_back(each.rank);
      same->first.for_ms = std::max(same->first.for_ms, each.for_ms);
      same->first.behind_ms = std::max(same->first.behind_ms, each.behind_ms);
    }
  }
  if (rows.empty()) return {};
  std::size_t widest = 10;
  for (const Row& row : rows)
    widest = std::max(widest, std::min<std::size_t>(row.first.stands_in.size(), 64));
  const std::vector<TableColumn> columns = {{13, 1}, {widest + 2, 1}, {10}, {10, 2}, {0, 1}};
  std::vector<std::vector<std::string>> cells = {
      {"rank", "stands in", "for", "behind", "waits for"}};
  for (std::size_t i = 0; i < rows.size() && i < kMostWaitingRows; ++i) {
    Row& row = rows[i];
    std::sort(row.ranks.begin(), row.ranks.end());
    std::string waits_for = "-";
    if (!row.first.waits_for.empty()) {
      waits_for = (row.first.waits_for.size() == 1 ? "rank " : "ranks ") +
                  number_ranges(row.first.waits_for);
    } else if (row.first.all_there) {
      waits_for = "all have come";
    }
    cells.push_back({number_ranges(row.ranks), row.first.stands_in,
                     row.first.for_ms > 0 ? seconds(row.first.for_ms) : "-",
                     row.first.behind_ms > 0 ? seconds(row.first.behind_ms) : "-", waits_for});
  }
  std::string out = fitted_table(columns, std::move(cells), width);
  if (rows.size() > kMostWaitingRows)
    out += "  and " + std::to_string(rows.size() - kMostWaitingRows) + " more rows\n";
  return out;
}

}  // namespace hora::launcher
