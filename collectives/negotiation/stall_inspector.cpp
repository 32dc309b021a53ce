// SPDX-License-Identifier: Apache-2.0
// An entry passes two limits: after `warning` it is reported, after `shutdown` it ends the job.
// check() computes when the next one is due, so its caller need not poll.
#include "collectives/negotiation/stall_inspector.h"

#include <algorithm>
#include <cstdio>
#include <map>

namespace hora::collectives {

namespace {

using std::chrono::seconds;

// A stalled rank usually misses dozens of tensors; the first ones are enough to find the place.
constexpr std::size_t kNamesShown = 6;

std::string whole_seconds(Clock::duration time) {
  return std::to_string(std::chrono::duration_cast<seconds>(time).count()) + " s";
}

}  // namespace

StallInspector::StallInspector(Options options)
    : options_(options),
      shutdown_ignored_(options.shutdown.count() > 0 && options.shutdown < options.warning),
      next_check_(options.enabled ? TimePoint::min() : TimePoint::max()) {
  options_.warning = std::max(options_.warning, seconds(1));
  if (shutdown_ignored_) options_.shutdown = seconds(0);
}

std::string StallInspector::complaint() const {
  // A shutdown before the first warning would end jobs without any explanation.
  if (!options_.enabled || !shutdown_ignored_) return {};
  return "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS is below HOROVOD_STALL_CHECK_TIME_SECONDS and is "
         "ignored: no job ends for a stall that was not warned of";
}

StallInspector::Report StallInspector::check(const Coordinator& coordinator, TimePoint now) {
  Report report;
  if (!options_.enabled) return report;
  // The next check is due when the next entry reaches a limit; the warnings repeat at most this
  // often.
  next_check_ = now + options_.warning;
  std::vector<Waiting> stalled;
  bool fatal = false;
  for (Waiting& each : coordinator.waiting()) {
    if (each.missing.empty()) continue;  // complete: it waits for the other members of its group
    const bool overdue = options_.shutdown.count() > 0 && now - each.since >= options_.shutdown;
    if (now - each.since < options_.warning) {
      next_check_ = std::min(next_check_, each.since + options_.warning);
      continue;
    }
    // Warned already, but its shutdown is still to come: look again then.
    if (options_.shutdown.count() > 0 && !overdue) {
      next_check_ = std::min(next_check_, each.since + options_.shutdown);
    }
    fatal = fatal || overdue;
    stalled.push_back(std::move(each));
  }
  if (stalled.empty()) return report;
  // With repetitions; the caller only needs the set of ranks.
  for (const Waiting& each : stalled) {
    report.missing.insert(report.missing.end(), each.missing.begin(), each.missing.end());
  }
  const std::string text = list_missing(coordinator, stalled, now);
  if (fatal) {
    report.fatal = "stalled for " + whole_seconds(now - stalled.front().since) +
                   ", the limit is HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=" +
                   std::to_string(options_.shutdown.count()) + ":" + text;
  } else {
    report.warning =
        "some ranks have waited for " + whole_seconds(now - stalled.front().since) +
        " for tensors that others have not submitted: those may be slow, have left the loop, or "
        "run another program:" +
        text;
  }
  return report;
}

// For each missing rank: what the others wait for, oldest first, and what it did last.
std::string StallInspector::list_missing(const Coordinator& coordinator,
                                         const std::vector<Waiting>& waiting, TimePoint now) const {
  // Grouped by rank, because one slow rank explains many stalled tensors.
  std::map<std::int32_t, std::vector<const Waiting*>> by_rank;
  for (const Waiting& each : waiting) {
    for (const std::int32_t rank : each.missing) by_rank[rank].push_back(&each);
  }
  std::string text;
  for (const auto& [rank, missing] : by_rank) {
    text += "\n  rank " + std::to_string(rank) + " is missing in ";
    for (std::size_t i = 0; i < missing.size() && i < kNamesShown; ++i) {
      const Waiting& each = *missing[i];
      if (i > 0) text += ", ";
      text += title_of(each.action, each.name);
      // The world is the default and needs no mention.
      if (each.process_set != 0) {
        text += " of process set " + std::to_string(each.process_set);
      }
    }
    // The total distinguishes a single missing tensor from a rank that has left the loop.
    if (missing.size() > kNamesShown) {
      text += ", ... (" + std::to_string(missing.size()) + " in all)";
    }
    text += " for " + whole_seconds(now - missing.front()->since);
    if (const auto* last = coordinator.last_asked(rank)) {
      text += "; it last submitted " + title_of(last->action, last->name) + ", " +
              whole_seconds(now - last->when) + " ago";
    } else {
      text += "; it has submitted nothing yet";
    }
  }
  return text;
}

}  // namespace hora::collectives
