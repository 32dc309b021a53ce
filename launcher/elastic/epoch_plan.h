// SPDX-License-Identifier: Apache-2.0
// The workers of an elastic job, who takes part in its next epoch, and which rank each has.  [pure]
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/job/job_state.h"
#include "launcher/plan/plan.h"

namespace hora::launcher::elastic {

// Who takes part in the next epoch of an elastic job, and with which rank.

// The processes that one host can bring. Survivors are those that are running there, with the local
// ranks 0 .. survivors-1; `room` more can be started.
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

// The workers and agents of an elastic job, present and past, and what each is doing.
// A worker is one process, and its number is never used again. An incarnation is one agent on one
// host; a host has several in the course of time, and more than one at a time when it gets more
// slots.

using WorkerId = int;
using IncarnationId = int;

// kAsking: it waits for its place in the next epoch. kLeaving: it has no place, and ends by itself.
enum class WorkerPhase { kOrdered, kRunning, kAsking, kSucceeded, kFailed, kLeaving, kGone };
// kOrdered: it prepares its order. kEnding: it was asked to end.
enum class IncarnationPhase { kConnecting, kIdle, kOrdered, kReady, kRunning, kEnding, kGone };

class Roster {
 public:
  struct Worker {
    IncarnationId incarnation = 0;
    int local_rank = 0;
    int rank = 0;  // in the epoch that it was in last
    WorkerPhase phase = WorkerPhase::kOrdered;
    bool has_state = false;  // knows the state of the training
    std::optional<TimePoint> leave_by = {};
  };
  struct AgentIncarnation {
    Host host;
    IncarnationPhase phase = IncarnationPhase::kConnecting;
    TimePoint deadline{};  // kConnecting
  };
  using Survivors = std::map<std::pair<std::string, int>, WorkerId>;  // by host and local rank

  IncarnationId connect(const Host& host, TimePoint deadline);
  WorkerId order(IncarnationId incarnation, int local_rank, int rank, bool has_state);

  Worker& worker(WorkerId id) { return workers_[index(id)]; }
  const Worker& worker(WorkerId id) const { return workers_[index(id)]; }
  bool has_worker(WorkerId id) const { return id >= 0 && id < worker_count(); }
  AgentIncarnation& incarnation(IncarnationId id) { return incarnations_[index(id)]; }
  const AgentIncarnation& incarnation(IncarnationId id) const { return incarnations_[index(id)]; }
  int worker_count() const { return static_cast<int>(workers_.size()); }
  int incarnation_count() const { return static_cast<int>(incarnations_.size()); }

  // Notes that the agent is to end, with its workers. False when it is ending or gone already.
  bool end(IncarnationId id);
  // Notes that the agent has gone, with its workers. Returns whether that is a failure: it was not
  // asked to end, and was still needed.
  bool lose(IncarnationId id);

  // Agents that have not answered in time.
  std::vector<IncarnationId> late_to_connect(TimePoint now) const;
  // Workers that have not left in time; each is named once.
  std::vector<WorkerId> take_late_to_leave(TimePoint now);
  // When one of the two has something next.
  std::optional<TimePoint> next_deadline() const;

  Survivors survivors() const;
  // An agent on the host in this phase.
  std::optional<IncarnationId> incarnation_on(const std::string& host,
                                              IncarnationPhase phase) const;
  bool is_connecting() const;
  // The processes that the host can bring to an epoch, of these survivors: those without a gap, and
  // new ones if an idle agent waits.
  HostOffer offer_of(Host host, const Survivors& survivors) const;

 private:
  static std::size_t index(int id) { return static_cast<std::size_t>(id); }

  std::vector<Worker> workers_;
  std::vector<AgentIncarnation> incarnations_;
};

// Who has which rank in an epoch that is being prepared or running.

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
