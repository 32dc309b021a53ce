// SPDX-License-Identifier: Apache-2.0
// The records of the ranks are read at different moments: each when the question reaches its host,
// and a rank may go on in between. A rank is called absent from a collective only if nothing in its
// record says that it is in it, has asked for it or has just done it: a wrong accusation costs more
// than a missing one.
#include "launcher/report/waiting_ranks.h"

#include <algorithm>
#include <cstdio>
#include <map>

#include "launcher/report/fitted_text.h"
#include "launcher/report/resource_usage.h"
#include "launcher/text/text.h"
#include "rendezvous/contract/flight_record.h"

namespace hora::launcher {

namespace {

constexpr std::size_t kMostRows = 32;

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
  for (std::size_t i = 0; i < rows.size() && i < kMostRows; ++i) {
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
  if (rows.size() > kMostRows)
    out += "  and " + std::to_string(rows.size() - kMostRows) + " more rows\n";
  return out;
}

}  // namespace hora::launcher
