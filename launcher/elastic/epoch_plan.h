// SPDX-License-Identifier: Apache-2.0
// Who takes part in the next epoch of an elastic job, and with which rank.  [pure]
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/plan/plan.h"

namespace hora::launcher::elastic {

// What one host can bring. Survivors are the processes that are running there, with the local ranks
// 0 .. survivors-1; `room` more can be started.
struct HostOffer {
  Host host;
  int survivors = 0;
  int room = 0;
  bool has_state = false;  // its local rank 0 knows the state of the training
};

// Hosts in the order of the offers, except that the first one has the state if any does: rank 0 is
// the one that the others learn it from. Survivors are never left out in favour of new processes;
// above `most` the last ones are. Ranks are consecutive along hosts and local ranks, so that
// survivors keep their order.
Plan plan_epoch(std::vector<HostOffer> offers, std::optional<int> most);

// How many ranks each host has in `now` and in `next`: what changes.
struct PlanChange {
  bool removed = false;  // some host has fewer, or is gone
  bool added = false;    // some host has more, or is new
  friend bool operator==(const PlanChange&, const PlanChange&) = default;
};
PlanChange compare_plans(const Plan& now, const Plan& next);

// "3 ranks: a:2, b:1"
std::string describe_plan(const Plan& plan);

}  // namespace hora::launcher::elastic
