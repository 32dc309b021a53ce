// SPDX-License-Identifier: Apache-2.0
#include "launcher/elastic/epoch_plan.h"

#include <algorithm>
#include <map>
#include <utility>

#include "rendezvous/base/text.h"

namespace hora::launcher::elastic {

// Plans an epoch from the hosts' offers. Survivors come before new ranks, because they hold the
// state.

namespace {

std::map<std::string, int> ranks_by_host(const Plan& plan) {
  std::map<std::string, int> ranks;
  for (const HostPlan& host : plan.hosts) {
    ranks[host.host.name] = static_cast<int>(host.slots.size());
  }
  return ranks;
}

}  // namespace

Plan plan_epoch(std::vector<HostOffer> offers, std::optional<int> most) {
  // The first host becomes rank 0, which broadcasts its state, so it must have some.
  const auto first = std::find_if(offers.begin(), offers.end(), [](const HostOffer& offer) {
    return offer.survivors > 0 && offer.has_state;
  });
  if (first != offers.end()) std::rotate(offers.begin(), first, first + 1);

  int left = most.value_or(kMaxRanks);
  std::vector<Host> hosts;
  for (const HostOffer& offer : offers) {
    const int kept = std::min(offer.survivors, left);
    left -= kept;
    hosts.push_back(offer.host);
    hosts.back().slots = kept;
  }
  for (std::size_t i = 0; i < offers.size(); ++i) {
    // New ranks get the local ranks after all survivors of their host.
    if (*hosts[i].slots < offers[i].survivors) continue;
    const int added = std::min(offers[i].room, left);
    left -= added;
    *hosts[i].slots += added;
  }
  auto plan = plan_job(hosts, 0);
  // Without any slot the plan is empty.
  return plan ? std::move(*plan) : Plan{};
}

// A change can both add and remove ranks; Horovod's workers learn which.
PlanChange compare_plans(const Plan& now, const Plan& next) {
  const auto before = ranks_by_host(now);
  const auto after = ranks_by_host(next);
  PlanChange change;
  for (const auto& [host, count] : before) {
    const auto found = after.find(host);
    const int then = found == after.end() ? 0 : found->second;
    change.removed = change.removed || then < count;
    change.added = change.added || then > count;
  }
  for (const auto& [host, count] : after) {
    change.added = change.added || before.count(host) == 0;
  }
  return change;
}

std::string describe_plan(const Plan& plan) {
  constexpr std::size_t kShown = 16;
  std::string text = counted(plan.world_size, "rank") + ": ";
  for (std::size_t i = 0; i < std::min(plan.hosts.size(), kShown); ++i) {
    Host host = plan.hosts[i].host;
    host.slots = static_cast<int>(plan.hosts[i].slots.size());
    text += (i == 0 ? "" : ", ") + format_host(host);
  }
  if (plan.hosts.size() > kShown) {
    text += " and " + std::to_string(plan.hosts.size() - kShown) + " more hosts";
  }
  return text;
}

IncarnationId Roster::connect(const Host& host, TimePoint deadline) {
  incarnations_.push_back({host, IncarnationPhase::kConnecting, deadline});
  return incarnation_count() - 1;
}

WorkerId Roster::order(IncarnationId incarnation, int local_rank, int rank, bool has_state) {
  workers_.push_back(
      {.incarnation = incarnation, .local_rank = local_rank, .rank = rank, .has_state = has_state});
  return worker_count() - 1;
}

bool Roster::end(IncarnationId id) {
  AgentIncarnation& ending = incarnation(id);
  if (ending.phase == IncarnationPhase::kEnding || ending.phase == IncarnationPhase::kGone) {
    return false;
  }
  ending.phase = IncarnationPhase::kEnding;
  for (Worker& each : workers_) {
    if (each.incarnation != id) continue;
    if (each.phase == WorkerPhase::kOrdered || each.phase == WorkerPhase::kRunning ||
        each.phase == WorkerPhase::kAsking) {
      each.phase = WorkerPhase::kFailed;
    } else if (each.phase == WorkerPhase::kLeaving) {
      each.phase = WorkerPhase::kGone;
    }
  }
  return true;
}

// Workers of a lost agent count as failed, since the agent kills them when it loses the launcher.
bool Roster::lose(IncarnationId id) {
  const IncarnationPhase before = std::exchange(incarnation(id).phase, IncarnationPhase::kGone);
  bool was_needed = before == IncarnationPhase::kConnecting || before == IncarnationPhase::kIdle ||
                    before == IncarnationPhase::kOrdered || before == IncarnationPhase::kReady;
  for (Worker& each : workers_) {
    if (each.incarnation != id) continue;
    if (each.phase == WorkerPhase::kLeaving) each.phase = WorkerPhase::kGone;
    const bool lived = each.phase == WorkerPhase::kRunning || each.phase == WorkerPhase::kAsking ||
                       each.phase == WorkerPhase::kOrdered;
    if (!lived) continue;
    each.phase = WorkerPhase::kFailed;
    was_needed = true;
  }
  return was_needed && before != IncarnationPhase::kEnding && before != IncarnationPhase::kGone;
}

std::vector<IncarnationId> Roster::late_to_connect(TimePoint now) const {
  std::vector<IncarnationId> late;
  for (IncarnationId id = 0; id < incarnation_count(); ++id) {
    const AgentIncarnation& each = incarnation(id);
    if (each.phase == IncarnationPhase::kConnecting && now >= each.deadline) late.push_back(id);
  }
  return late;
}

std::vector<WorkerId> Roster::take_late_to_leave(TimePoint now) {
  std::vector<WorkerId> late;
  for (WorkerId id = 0; id < worker_count(); ++id) {
    Worker& each = worker(id);
    if (each.phase != WorkerPhase::kLeaving || !each.leave_by || now < *each.leave_by) continue;
    each.leave_by.reset();
    late.push_back(id);
  }
  return late;
}

std::optional<TimePoint> Roster::next_deadline() const {
  std::optional<TimePoint> next;
  const auto consider = [&next](std::optional<TimePoint> when) {
    if (when && (!next || *when < *next)) next = when;
  };
  for (const AgentIncarnation& each : incarnations_) {
    if (each.phase == IncarnationPhase::kConnecting) consider(each.deadline);
  }
  for (const Worker& each : workers_) {
    if (each.phase == WorkerPhase::kLeaving) consider(each.leave_by);
  }
  return next;
}

// Keyed by host and local rank: that is how a worker keeps its seat.
Roster::Survivors Roster::survivors() const {
  Survivors found;
  for (WorkerId id = 0; id < worker_count(); ++id) {
    const Worker& each = worker(id);
    if (each.phase != WorkerPhase::kRunning && each.phase != WorkerPhase::kAsking) continue;
    found.emplace(std::make_pair(incarnation(each.incarnation).host.name, each.local_rank), id);
  }
  return found;
}

std::optional<IncarnationId> Roster::incarnation_on(const std::string& host,
                                                    IncarnationPhase phase) const {
  for (IncarnationId id = 0; id < incarnation_count(); ++id) {
    if (incarnation(id).phase == phase && incarnation(id).host.name == host) return id;
  }
  return std::nullopt;
}

bool Roster::is_connecting() const {
  return std::any_of(incarnations_.begin(), incarnations_.end(), [](const AgentIncarnation& each) {
    return each.phase == IncarnationPhase::kConnecting;
  });
}

HostOffer Roster::offer_of(Host host, const Survivors& survivors) const {
  const int slots = host.slots.value_or(0);
  HostOffer offer;
  while (offer.survivors < slots && survivors.contains({host.name, offer.survivors})) {
    ++offer.survivors;
  }
  if (incarnation_on(host.name, IncarnationPhase::kIdle)) offer.room = slots - offer.survivors;
  const auto first = survivors.find({host.name, 0});
  offer.has_state = first != survivors.end() && worker(first->second).has_state;
  offer.host = std::move(host);
  return offer;
}

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
