// SPDX-License-Identifier: Apache-2.0
// The life of an elastic job as a state machine: hosts that come, go and fail, epochs in which its
// ranks meet, and the orders of an epoch.  [pure]
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "launcher/elastic/epoch_plan.h"
#include "launcher/elastic/host_registry.h"
#include "launcher/job/job_state.h"
#include "launcher/protocol/messages.h"

namespace hora::launcher::elastic {

// The life of an elastic job as a state machine: hosts that come, go and fail, and the epochs in
// which its ranks meet.
// clang-format off
//   waiting --enough hosts--> preparing --all ready--> running --a rank asks, ends or is lost--> broken
//      ^                          | a host fails                                                   |
//      +--------------------------+------------------- every rank has asked or has ended ----------+
// clang-format on
// A worker is one process: its number is never used again. A life is one agent on one host; a host
// has several in the course of time, and more than one at a time when it gets more slots. A worker
// that wants to go on after its epoch asks for its next place, by which it acknowledges that the
// epoch is over; one that neither asks nor ends is ended, with its host. docs/flows/elastic.md.

// --- events --------------------------------------------------------------------------------------

struct HostsListed {
  std::vector<Host> hosts;  // slots set
};
struct DiscoveryFailed {
  std::string why;
};
// No host will come any more, and all will go.
struct AllocationEnded {
  Failure failure;
};
struct AgentGreeted {
  IncarnationId incarnation;
};
struct AgentReady {  // its order is prepared
  IncarnationId incarnation;
};
struct AgentGone {
  IncarnationId incarnation;
  std::optional<Failure> failure;    // none: it said goodbye
  std::chrono::nanoseconds when{0};  // on the launcher's wall clock
};
struct WorkerAsked {
  WorkerId worker;
  bool has_state;
};
// A rank of that epoch could not connect to another one.
struct PeerUnreached {
  int epoch;
  int rank;
  bool is_host;  // to the first rank of the host with that number in the plan
  int peer;
};
struct WorkerEnded {
  WorkerId worker;
  RankExit exit;
  std::chrono::nanoseconds when{0};
};
// next_deadline() has passed.
struct Tick {};

using ElasticEvent =
    std::variant<HostsListed, DiscoveryFailed, AllocationEnded, AgentGreeted, AgentReady, AgentGone,
                 WorkerAsked, PeerUnreached, WorkerEnded, Tick>;

// --- actions -------------------------------------------------------------------------------------

struct Connect {
  IncarnationId incarnation;
  Host host;
};
// An order to every life of new_incarnations(), for its workers in seats().
struct PrepareEpoch {};
// Start new_incarnations(), answer the workers in seats() that asked, end those in dismissed().
struct BeginEpoch {};
// The epoch is over for one worker: those that have not met yet need not wait any longer.
struct BreakEpoch {};
struct EndWorker {
  WorkerId worker;
};
struct EndIncarnation {
  IncarnationId incarnation;
};
// The worker with rank 0 should know that a new epoch would look otherwise.
struct NotifyWorkers {
  PlanChange change;
};
struct Message {
  bool is_warning = false;
  std::string text;
};
// For cause(), or because every rank of the epoch succeeded.
struct EndJob {};

using ElasticAction = std::variant<Connect, PrepareEpoch, BeginEpoch, BreakEpoch, EndWorker,
                                   EndIncarnation, NotifyWorkers, Message, EndJob>;

struct ElasticOptions {
  int np = 1;      // ranks before the first epoch begins
  int min_np = 1;  // before any other
  std::optional<int> max_np;
  std::optional<int> reset_limit;
  std::optional<CooldownRange> cooldown;
  Milliseconds elastic_timeout{600'000};
  Milliseconds start_timeout{30'000};
  Milliseconds settle{5'000};    // for hosts that are being connected, when there are enough others
  Milliseconds leave{20'000};    // for ranks that are no longer needed, to end by themselves
  bool hosts_are_fixed = false;  // no source lists further hosts
  // A host that failed and is no longer listed was taken: if it is given again, it is a new one.
  bool engine_takes_hosts = false;
};

class ElasticState {
 public:
  using Seat = elastic::Seat;

  ElasticState(const ElasticOptions& options, std::function<double()> random, TimePoint now);

  std::vector<ElasticAction> step(const ElasticEvent& event, TimePoint now);
  std::optional<TimePoint> next_deadline() const;

  // From 1; 0 before the first.
  int epoch() const { return epoch_; }
  bool over() const { return phase_ == Phase::kOver; }
  // Once it is over: why; none: success.
  const std::optional<Cause>& cause() const { return cause_; }
  // These describe the epoch that is being prepared or running.
  const Plan& plan() const { return epoch_seats_.plan(); }
  const std::vector<Seat>& seats() const { return epoch_seats_.all(); }
  const std::vector<IncarnationId>& new_incarnations() const {
    return epoch_seats_.new_incarnations();
  }
  const std::vector<WorkerId>& dismissed() const { return epoch_seats_.dismissed(); }
  int worker_count() const { return roster_.worker_count(); }
  IncarnationId incarnation_of(WorkerId worker) const { return roster_.worker(worker).incarnation; }
  int local_rank_of(WorkerId worker) const { return roster_.worker(worker).local_rank; }
  int incarnation_count() const { return roster_.incarnation_count(); }
  const Host& host_of(IncarnationId incarnation) const {
    return roster_.incarnation(incarnation).host;
  }

 private:
  enum class Phase { kWaiting, kPreparing, kRunning, kBroken, kOver };
  using Actions = std::vector<ElasticAction>;

  void on(const HostsListed&, TimePoint, Actions&);
  void on(const DiscoveryFailed&, TimePoint, Actions&);
  void on(const AllocationEnded&, TimePoint, Actions&);
  void on(const AgentGreeted&, TimePoint, Actions&);
  void on(const AgentReady&, TimePoint, Actions&);
  void on(const AgentGone&, TimePoint, Actions&);
  void on(const WorkerAsked&, TimePoint, Actions&);
  void on(const PeerUnreached&, TimePoint, Actions&);
  void on(const WorkerEnded&, TimePoint, Actions&);
  void on(const Tick&, TimePoint, Actions&);

  // Blacklists the host and ends what runs there.
  void fail_host(const std::string& host, const std::string& why, TimePoint now, Actions& actions);
  void end_incarnation(IncarnationId id, Actions& actions);
  void note_failure(Cause cause, std::chrono::nanoseconds when);
  void add_message(bool is_warning, std::string text, Actions& actions);

  // Moves from phase to phase until no further step is possible.
  void advance(TimePoint now, Actions& actions);
  void advance_waiting(TimePoint now, Actions& actions);
  void advance_preparing(TimePoint now, Actions& actions);
  void advance_running(TimePoint now, Actions& actions);
  void advance_broken(TimePoint now, Actions& actions);
  void evaluate(TimePoint now, Actions& actions);
  void leave_out_unreached(TimePoint now, Actions& actions);
  void wait_for_hosts(TimePoint now);
  void take_seats(Plan plan, Actions& actions);
  void begin_epoch(TimePoint now, Actions& actions);
  void connect_needed(TimePoint now, Actions& actions);
  void notify_if_changed(TimePoint now, Actions& actions);
  void finish(std::optional<Cause> cause, Actions& actions);
  void finish_without_hosts(std::string_view code, const std::string& why, Actions& actions);
  std::string shortage(int threshold, TimePoint now) const;

  std::vector<Host> hosts_in_order(TimePoint now) const;
  std::vector<HostOffer> offers(TimePoint now) const;
  bool any_seat(WorkerPhase phase) const { return epoch_seats_.any(phase, roster_); }
  bool has_survivor() const { return any_seat(WorkerPhase::kAsking); }
  int threshold() const { return epoch_ == 0 ? options_.np : options_.min_np; }

  ElasticOptions options_;
  HostRegistry registry_;
  UnreachedHosts unreached_;
  Phase phase_ = Phase::kWaiting;
  bool listed_ = false;
  int epoch_ = 0;
  int resets_ = 0;
  Roster roster_;
  EpochSeats epoch_seats_;
  std::vector<std::string> host_order_;  // of the epoch before

  bool shortage_reported_ = false;         // in this phase of waiting
  TimePoint phase_deadline_{};             // of waiting, preparing, broken
  std::optional<TimePoint> settle_until_;  // hosts that are being connected are waited for
  std::optional<Plan> notified_;           // what the workers expect, as announced
  std::optional<TimePoint> next_return_;   // of a blacklisted host

  struct FirstFailure {
    Cause cause;
    std::chrono::nanoseconds when;
  };
  std::optional<FirstFailure> first_failure_;  // of this epoch
  std::string discovery_problem_;
  std::optional<Cause> cause_;
};

// The orders of an epoch's plan, shared out to the agents that start its new workers.

// What `incarnation`, which has new workers among `seats`, is sent. `orders` are those of the
// epoch's plan, by host, with its ranks; a host may have several agents, and an agent knows its
// ranks by the numbers of the workers.
HostOrder order_of_incarnation(const std::vector<HostOrder>& orders,
                               const std::vector<ElasticState::Seat>& seats,
                               IncarnationId incarnation, int epoch);

}  // namespace hora::launcher::elastic
