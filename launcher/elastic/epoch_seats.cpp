// SPDX-License-Identifier: Apache-2.0
#include "launcher/elastic/epoch_seats.h"

#include <algorithm>
#include <utility>

namespace hora::launcher::elastic {

void EpochSeats::take(Plan plan, bool has_state, Roster& roster) {
  const Roster::Survivors living = roster.survivors();
  plan_ = std::move(plan);
  seats_.clear();
  new_incarnations_.clear();
  dismissed_.clear();
  for (const HostPlan& host : plan_.hosts) {
    for (const Slot& slot : host.slots) {
      const auto survivor = living.find({host.host.name, slot.local_rank});
      if (survivor != living.end()) {
        seats_.push_back({survivor->second, roster.worker(survivor->second).incarnation, false});
        continue;
      }
      const IncarnationId id = ordered_on(host.host.name, roster);
      seats_.push_back({roster.order(id, slot.local_rank, slot.rank, has_state), id, true});
    }
  }
  // A survivor without a seat (its host lost slots) leaves in order.
  for (const auto& [place, id] : living) {
    const auto is_its = [worker = id](const Seat& seat) { return seat.worker == worker; };
    if (std::none_of(seats_.begin(), seats_.end(), is_its)) dismissed_.push_back(id);
  }
}

// All new workers of a host share one agent, which takes one order.
IncarnationId EpochSeats::ordered_on(const std::string& host, Roster& roster) {
  if (const auto known = roster.incarnation_on(host, IncarnationPhase::kOrdered)) return *known;
  const IncarnationId id = *roster.incarnation_on(host, IncarnationPhase::kIdle);
  roster.incarnation(id).phase = IncarnationPhase::kOrdered;
  new_incarnations_.push_back(id);
  return id;
}

std::vector<IncarnationId> EpochSeats::discard(const Roster& roster) {
  std::vector<IncarnationId> void_orders;
  for (const IncarnationId id : std::exchange(new_incarnations_, {})) {
    const IncarnationPhase phase = roster.incarnation(id).phase;
    if (phase == IncarnationPhase::kOrdered || phase == IncarnationPhase::kReady) {
      void_orders.push_back(id);
    }
  }
  // Workers that wait for a place still have their seat of the last epoch.
  std::erase_if(seats_, [](const Seat& seat) { return seat.is_new; });
  for (const WorkerId id : std::exchange(dismissed_, {})) {
    seats_.push_back({id, roster.worker(id).incarnation, false});
  }
  return void_orders;
}

void EpochSeats::begin(TimePoint leave_by, Roster& roster) {
  for (std::size_t rank = 0; rank < seats_.size(); ++rank) {
    Roster::Worker& seated = roster.worker(seats_[rank].worker);
    seated.phase = WorkerPhase::kRunning;
    seated.rank = static_cast<int>(rank);
  }
  for (const IncarnationId id : new_incarnations_) {
    roster.incarnation(id).phase = IncarnationPhase::kRunning;
  }
  // A dismissed worker leaves only if it still asks; one that has ended needs nothing.
  std::erase_if(dismissed_,
                [&roster](WorkerId id) { return roster.worker(id).phase != WorkerPhase::kAsking; });
  for (const WorkerId id : dismissed_) {
    roster.worker(id).phase = WorkerPhase::kLeaving;
    roster.worker(id).leave_by = leave_by;
  }
}

bool EpochSeats::any(WorkerPhase phase, const Roster& roster) const {
  return std::any_of(seats_.begin(), seats_.end(),
                     [&](const Seat& seat) { return roster.worker(seat.worker).phase == phase; });
}

bool EpochSeats::includes(IncarnationId incarnation) const {
  return std::any_of(seats_.begin(), seats_.end(),
                     [incarnation](const Seat& seat) { return seat.incarnation == incarnation; });
}

bool EpochSeats::all_ready(const Roster& roster) const {
  return std::all_of(new_incarnations_.begin(), new_incarnations_.end(), [&](IncarnationId id) {
    return roster.incarnation(id).phase == IncarnationPhase::kReady;
  });
}

}  // namespace hora::launcher::elastic
