// SPDX-License-Identifier: Apache-2.0
// The workers and agents of an elastic job, present and past, and what each is doing.  [pure]
//
// A worker is one process, and its number is never used again. An incarnation is one agent on one
// host; a host has several in the course of time, and more than one at a time when it gets more
// slots.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/elastic/epoch_plan.h"
#include "launcher/job/job_state.h"

namespace hora::launcher::elastic {

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
  // Notes that the agent has gone, with its workers. Returns whether that is a failure: nobody had
  // asked it to end, and it was still needed.
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
  // What the host can bring to an epoch, of these survivors: those without a gap, and room where an
  // idle agent waits.
  HostOffer offer_of(Host host, const Survivors& survivors) const;

 private:
  static std::size_t index(int id) { return static_cast<std::size_t>(id); }

  std::vector<Worker> workers_;
  std::vector<AgentIncarnation> incarnations_;
};

}  // namespace hora::launcher::elastic
