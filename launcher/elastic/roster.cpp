// SPDX-License-Identifier: Apache-2.0
#include "launcher/elastic/roster.h"

#include <algorithm>

namespace hora::launcher::elastic {

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

}  // namespace hora::launcher::elastic
