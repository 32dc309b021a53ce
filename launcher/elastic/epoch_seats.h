// SPDX-License-Identifier: Apache-2.0
// Who has which rank in an epoch that is being prepared or running.  [pure]
#pragma once

#include <vector>

#include "launcher/elastic/roster.h"
#include "launcher/plan/plan.h"

namespace hora::launcher::elastic {

// One place in an epoch.
struct Seat {
  WorkerId worker;
  IncarnationId incarnation;
  bool is_new;
  friend bool operator==(const Seat&, const Seat&) = default;
};

class EpochSeats {
 public:
  // Turns the plan into seats: survivors keep theirs, and new workers take the rest; these are
  // entered in the roster, with an order for an idle agent of their host. `has_state`: of the new
  // workers; in the first epoch there is no state that they could lack.
  void take(Plan plan, bool has_state, Roster& roster);
  // The plan no longer holds: returns the agents whose orders are void. Survivors keep the seats
  // that they had.
  std::vector<IncarnationId> discard(const Roster& roster);
  // The epoch begins: the seated workers run, and survivors without a seat leave.
  void begin(TimePoint leave_by, Roster& roster);

  const Plan& plan() const { return plan_; }
  // By rank.
  const std::vector<Seat>& all() const { return seats_; }
  // The agents with an order for this epoch.
  const std::vector<IncarnationId>& new_incarnations() const { return new_incarnations_; }
  // Survivors without a seat.
  const std::vector<WorkerId>& dismissed() const { return dismissed_; }

  bool any(WorkerPhase phase, const Roster& roster) const;
  bool includes(IncarnationId incarnation) const;
  bool all_ready(const Roster& roster) const;

 private:
  // The agent that has, or now gets, the order for new workers on the host.
  IncarnationId ordered_on(const std::string& host, Roster& roster);

  Plan plan_;
  std::vector<Seat> seats_;
  std::vector<IncarnationId> new_incarnations_;
  std::vector<WorkerId> dismissed_;
};

}  // namespace hora::launcher::elastic
