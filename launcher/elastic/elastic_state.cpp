// SPDX-License-Identifier: Apache-2.0
#include "launcher/elastic/elastic_state.h"

#include <algorithm>
#include <string>
#include <utility>

#include "launcher/failures/failure_code.h"
#include "launcher/failures/rank_exit_text.h"
#include "launcher/text/text.h"
#include "launcher/text/units.h"
#include "rendezvous/contract/worker_env.h"

namespace hora::launcher::elastic {

// An event changes the phases of agents and workers (on()); then the job moves from phase to phase
// until no further step is possible (advance()): it waits for enough hosts, takes seats and
// prepares new agents, runs, and breaks when a rank fails or asks for the next epoch. The class
// only decides; the supervisor carries out the actions.

namespace {

Cause launch_cause(std::string_view code, std::string message) {
  Cause cause;
  cause.kind = Cause::Kind::kLaunch;
  cause.failure = {std::string(code), std::move(message), ""};
  cause.exit_code = exit_code_of_failure(code);
  return cause;
}

}  // namespace

ElasticState::ElasticState(const ElasticOptions& options, std::function<double()> random,
                           TimePoint now)
    : options_(options), registry_(options.cooldown, std::move(random)) {
  phase_deadline_ = now + options_.elastic_timeout;
  // The first epoch waits up to the start timeout for all hosts to answer.
  settle_until_ = now + std::min(options_.start_timeout, options_.elastic_timeout);
}

// Pure: the time comes in, actions go out, and nothing here touches a host.
std::vector<ElasticAction> ElasticState::step(const ElasticEvent& event, TimePoint now) {
  Actions actions;
  if (phase_ == Phase::kOver) return actions;
  std::visit([&](const auto& e) { on(e, now, actions); }, event);
  if (phase_ != Phase::kOver) advance(now, actions);
  return actions;
}

void ElasticState::add_message(bool is_warning, std::string text, Actions& actions) {
  actions.emplace_back(Message{is_warning, std::move(text)});
}

// A host that leaves the list keeps its running workers until the epoch ends, but an agent that
// only waits there is no longer needed.
void ElasticState::on(const HostsListed& e, TimePoint now, Actions& actions) {
  listed_ = true;
  discovery_problem_.clear();
  registry_.list(e.hosts);
  if (options_.engine_takes_hosts) registry_.forget_unlisted();
  const std::vector<Host> usable = registry_.available(now);
  for (IncarnationId id = 0; id < roster_.incarnation_count(); ++id) {
    const Roster::AgentIncarnation& known = roster_.incarnation(id);
    if (known.phase != IncarnationPhase::kConnecting && known.phase != IncarnationPhase::kIdle)
      continue;
    const bool is_listed = std::any_of(usable.begin(), usable.end(), [&](const Host& host) {
      return host.name == known.host.name;
    });
    if (!is_listed) end_incarnation(id, actions);
  }
}

// The last known list stays in use.
void ElasticState::on(const DiscoveryFailed& e, TimePoint, Actions&) { discovery_problem_ = e.why; }

void ElasticState::on(const AllocationEnded& e, TimePoint, Actions& actions) {
  finish(launch_cause(e.failure.code, e.failure.message), actions);
}

void ElasticState::on(const AgentGreeted& e, TimePoint, Actions&) {
  if (roster_.incarnation(e.incarnation).phase == IncarnationPhase::kConnecting)
    roster_.incarnation(e.incarnation).phase = IncarnationPhase::kIdle;
}

void ElasticState::on(const AgentReady& e, TimePoint, Actions&) {
  if (roster_.incarnation(e.incarnation).phase == IncarnationPhase::kOrdered)
    roster_.incarnation(e.incarnation).phase = IncarnationPhase::kReady;
}

void ElasticState::on(const AgentGone& e, TimePoint now, Actions& actions) {
  if (!roster_.lose(e.incarnation)) return;
  Failure failure = e.failure.value_or(
      Failure{std::string(failure::kAgent), "its agent ended before its ranks did", ""});
  const std::string why = failure.message + " [" + failure.code + "]";
  Cause cause;
  cause.kind = Cause::Kind::kHost;
  cause.host = e.incarnation;
  cause.failure = std::move(failure);
  cause.exit_code = kExitLauncher;
  // A failure is a possible cause of the job's end only if the host took part.
  if (epoch_seats_.includes(e.incarnation) || epoch_ == 0) note_failure(std::move(cause), e.when);
  fail_host(roster_.incarnation(e.incarnation).host.name, why, now, actions);
}

// A worker may ask more than once; having state once suffices.
void ElasticState::on(const WorkerAsked& e, TimePoint, Actions&) {
  if (!roster_.has_worker(e.worker)) return;
  Roster::Worker& asking = roster_.worker(e.worker);
  if (asking.phase != WorkerPhase::kRunning && asking.phase != WorkerPhase::kAsking) return;
  asking.phase = WorkerPhase::kAsking;
  asking.has_state = asking.has_state || e.has_state;
}

// A late message refers to a plan that is gone.
void ElasticState::on(const PeerUnreached& e, TimePoint, Actions&) {
  if (e.epoch != epoch_ || (phase_ != Phase::kRunning && phase_ != Phase::kBroken)) return;
  const std::vector<HostPlan>& hosts = plan().hosts;
  const auto host_of_rank = [&](int rank) {
    return std::find_if(hosts.begin(), hosts.end(), [rank](const HostPlan& host) {
      return std::any_of(host.slots.begin(), host.slots.end(),
                         [rank](const Slot& slot) { return slot.rank == rank; });
    });
  };
  const auto reporter = host_of_rank(e.rank);
  const auto peer = !e.is_host                                ? host_of_rank(e.peer)
                    : e.peer < static_cast<int>(hosts.size()) ? hosts.begin() + e.peer
                                                              : hosts.end();
  if (reporter == hosts.end() || peer == hosts.end()) return;
  unreached_.note(static_cast<std::size_t>(reporter - hosts.begin()),
                  static_cast<std::size_t>(peer - hosts.begin()));
}

// A worker that was dismissed may end as it likes.
void ElasticState::on(const WorkerEnded& e, TimePoint now, Actions& actions) {
  if (!roster_.has_worker(e.worker)) return;
  Roster::Worker& ended = roster_.worker(e.worker);
  if (ended.phase == WorkerPhase::kLeaving) ended.phase = WorkerPhase::kGone;
  if (ended.phase != WorkerPhase::kRunning && ended.phase != WorkerPhase::kAsking) return;
  if (!failed(e.exit)) {
    ended.phase = WorkerPhase::kSucceeded;
    return;
  }
  ended.phase = WorkerPhase::kFailed;
  Cause cause;
  cause.kind = Cause::Kind::kRank;
  cause.host = ended.incarnation;
  cause.exit = e.exit;
  // Report the rank by which it was known in its epoch.
  cause.exit.rank = ended.rank;
  cause.exit_code = exit_code_of(e.exit);
  note_failure(std::move(cause), e.when);
  // Like Horovod, a failed rank bars its whole host: the machine may be broken.
  fail_host(roster_.incarnation(ended.incarnation).host.name,
            "rank " + std::to_string(ended.rank) + " " + how_it_ended(e.exit), now, actions);
}

void ElasticState::on(const Tick&, TimePoint now, Actions& actions) {
  for (const IncarnationId id : roster_.late_to_connect(now)) {
    // Failing a host ends all its agents, others that are late among them.
    if (roster_.incarnation(id).phase != IncarnationPhase::kConnecting) continue;
    fail_host(roster_.incarnation(id).host.name, "it did not answer within --start-timeout", now,
              actions);
  }
  // A dismissed worker that does not leave in time is ended.
  for (const WorkerId id : roster_.take_late_to_leave(now)) actions.emplace_back(EndWorker{id});
}

// Hosts report at different speeds; the earliest failure by the clock is the cause.
void ElasticState::note_failure(Cause cause, std::chrono::nanoseconds when) {
  if (first_failure_ && first_failure_->when <= when) return;
  first_failure_ = FirstFailure{std::move(cause), when};
}

// Ends all agents on the host, and warns once per exclusion.
void ElasticState::fail_host(const std::string& host, const std::string& why, TimePoint now,
                             Actions& actions) {
  const bool was_barred = registry_.is_blacklisted(host, now);
  registry_.blacklist(host, now);
  if (!was_barred) {
    add_message(true,
                "host " + host + ": " + why +
                    (options_.cooldown ? "; it is left alone for a while"
                                       : "; it takes no further part (--blacklist-cooldown-range)"),
                actions);
  }
  for (IncarnationId id = 0; id < roster_.incarnation_count(); ++id) {
    if (roster_.incarnation(id).host.name == host) end_incarnation(id, actions);
  }
}

void ElasticState::end_incarnation(IncarnationId id, Actions& actions) {
  if (roster_.end(id)) actions.emplace_back(EndIncarnation{id});
}

// Several phases may follow each other in one step, so repeat until nothing changes.
void ElasticState::advance(TimePoint now, Actions& actions) {
  while (true) {
    const Phase before = phase_;
    switch (phase_) {
      case Phase::kWaiting:
        advance_waiting(now, actions);
        break;
      case Phase::kPreparing:
        advance_preparing(now, actions);
        break;
      case Phase::kRunning:
        advance_running(now, actions);
        break;
      case Phase::kBroken:
        advance_broken(now, actions);
        break;
      case Phase::kOver:
        return;
    }
    if (phase_ == before) break;
  }
  // Hosts come back from the blacklist by time alone, so the clock must wake us then.
  next_return_ = registry_.next_return(now);
}

// --- waiting for hosts ---------------------------------------------------------------------------

// Waits a moment even with enough hosts: others that are about to answer would each cost an epoch.
void ElasticState::wait_for_hosts(TimePoint now) {
  phase_ = Phase::kWaiting;
  shortage_reported_ = false;
  phase_deadline_ = now + options_.elastic_timeout;
  settle_until_ = now + std::min(options_.settle, options_.elastic_timeout);
}

// A later epoch needs at least one rank that knows the state of the training, else it would start
// from scratch unnoticed.
void ElasticState::advance_waiting(TimePoint now, Actions& actions) {
  if (epoch_ > 0 && !has_survivor()) {
    return finish_without_hosts(failure::kElasticState,
                                "no rank is left that knows the state of the training", actions);
  }
  // Before the first answer of the discovery no host is known, so no decision is possible.
  if (!listed_) {
    if (now < phase_deadline_) return;
    return finish(launch_cause(failure::kElasticTimeout, shortage(threshold(), now)), actions);
  }
  connect_needed(now, actions);
  if (settle_until_ && (now >= *settle_until_ || !roster_.is_connecting())) settle_until_.reset();
  Plan plan = plan_epoch(offers(now), options_.max_np);
  const bool enough = plan.world_size >= threshold();
  if (enough && !settle_until_) return take_seats(std::move(plan), actions);
  // A fixed list of hosts cannot grow: fail now instead of waiting for the timeout.
  if (!enough && options_.hosts_are_fixed && !roster_.is_connecting() &&
      !registry_.may_return(now)) {
    return finish_without_hosts(failure::kElasticHosts, shortage(threshold(), now), actions);
  }
  if (!enough && !roster_.is_connecting() && now < phase_deadline_ &&
      !std::exchange(shortage_reported_, true)) {
    add_message(true,
                shortage(threshold(), now) + "; it waits for more, " +
                    format_duration(options_.elastic_timeout) + " at the most (--elastic-timeout)",
                actions);
  }
  if (now >= phase_deadline_) {
    finish(launch_cause(failure::kElasticTimeout, shortage(threshold(), now) + " within " +
                                                      format_duration(options_.elastic_timeout) +
                                                      " (--elastic-timeout)"),
           actions);
  }
}

std::string ElasticState::shortage(int threshold, TimePoint now) const {
  const Plan plan = plan_epoch(offers(now), options_.max_np);
  std::string text = "the job needs " + std::to_string(threshold) +
                     (epoch_ == 0 ? " ranks to start (-np)" : " ranks to go on (--min-np)") +
                     ", and the hosts that can be used have room for " + describe_plan(plan);
  if (plan.world_size == 0) text = text.substr(0, text.rfind(':'));
  if (!discovery_problem_.empty()) text += "; host discovery: " + discovery_problem_;
  return text;
}

// Connects an agent wherever there is room for more ranks, as far as the job may grow.
void ElasticState::connect_needed(TimePoint now, Actions& actions) {
  int left = options_.max_np.value_or(kMaxRanks);
  const Roster::Survivors living = roster_.survivors();
  for (const Host& host : hosts_in_order(now)) {
    if (left <= 0) return;
    const int slots = host.slots.value_or(0);
    left -= slots;
    int here = 0;
    // Survivors occupy the lowest local ranks; the first gap ends the count.
    while (here < slots && living.count({host.name, here}) > 0) ++here;
    if (here == slots || roster_.incarnation_on(host.name, IncarnationPhase::kIdle) ||
        roster_.incarnation_on(host.name, IncarnationPhase::kConnecting)) {
      continue;
    }
    const IncarnationId id = roster_.connect(host, now + options_.start_timeout);
    actions.emplace_back(Connect{id, host});
  }
}

// --- preparing -----------------------------------------------------------------------------------

// Turns the plan into seats: survivors keep theirs, and new workers take the rest. The first host's
// first rank broadcasts the state, so it must have it.
void ElasticState::take_seats(Plan plan, Actions& actions) {
  const Roster::Survivors living = roster_.survivors();
  const bool has_state = epoch_ == 0 || [&] {
    const auto first = living.find({plan.hosts.front().host.name, 0});
    return first != living.end() && roster_.worker(first->second).has_state;
  }();
  if (!has_state) {
    return finish_without_hosts(failure::kElasticState,
                                "no rank is left that knows the state of the training", actions);
  }
  epoch_seats_.take(std::move(plan), epoch_ == 0, roster_);
  phase_ = Phase::kPreparing;
  // advance_preparing() sets it, since it knows the time.
  phase_deadline_ = TimePoint::max();
  if (!epoch_seats_.new_incarnations().empty()) actions.emplace_back(PrepareEpoch{});
}

void ElasticState::advance_preparing(TimePoint now, Actions& actions) {
  if (phase_deadline_ == TimePoint::max()) phase_deadline_ = now + options_.start_timeout;
  if (now >= phase_deadline_) {
    // fail_host() changes the list, so iterate over a copy.
    for (const IncarnationId id : std::vector<IncarnationId>(epoch_seats_.new_incarnations())) {
      if (roster_.incarnation(id).phase != IncarnationPhase::kOrdered) continue;
      fail_host(roster_.incarnation(id).host.name, "it was not ready within --start-timeout", now,
                actions);
    }
  }
  // A rank ended during the preparation, so the plan no longer holds.
  if (any_seat(WorkerPhase::kFailed) || any_seat(WorkerPhase::kSucceeded)) {
    // An agent takes one order only, so agents with an order that is void must end.
    for (const IncarnationId id : epoch_seats_.discard(roster_)) end_incarnation(id, actions);
    wait_for_hosts(now);
    return;
  }
  if (epoch_seats_.all_ready(roster_)) begin_epoch(now, actions);
}

// All new agents are ready, so ranks and survivors may meet.
void ElasticState::begin_epoch(TimePoint now, Actions& actions) {
  ++epoch_;
  host_order_.clear();
  for (const HostPlan& host : epoch_seats_.plan().hosts) host_order_.push_back(host.host.name);
  epoch_seats_.begin(now + options_.leave, roster_);
  notified_ = epoch_seats_.plan();
  settle_until_.reset();
  first_failure_.reset();
  phase_ = Phase::kRunning;
  add_message(false,
              "elastic epoch " + std::to_string(epoch_) + ": " + describe_plan(epoch_seats_.plan()),
              actions);
  // Survivors are at the rendezvous and read their new places there.
  actions.emplace_back(BeginEpoch{});
}

// --- running -------------------------------------------------------------------------------------

// One failure or one request breaks the epoch for all: the collectives cannot go on without a
// member.
void ElasticState::advance_running(TimePoint now, Actions& actions) {
  if (any_seat(WorkerPhase::kFailed) || any_seat(WorkerPhase::kAsking)) {
    phase_ = Phase::kBroken;
    phase_deadline_ = now + options_.elastic_timeout;
    settle_until_.reset();
    actions.emplace_back(BreakEpoch{});
    return;
  }
  // A rank has finished the training, so the others will, too; wait for their ends.
  if (any_seat(WorkerPhase::kSucceeded)) {
    settle_until_.reset();
    if (!any_seat(WorkerPhase::kRunning)) finish(std::nullopt, actions);
    // The others are about to end as well, so no new rank is needed.
    return;
  }
  connect_needed(now, actions);
  notify_if_changed(now, actions);
}

// Informs the workers about a change; they come to the next epoch when they commit their state.
// With the reset limit used up they could not meet again, so do not disturb them.
void ElasticState::notify_if_changed(TimePoint now, Actions& actions) {
  if (options_.reset_limit && resets_ >= *options_.reset_limit) return;
  const Plan next = plan_epoch(offers(now), options_.max_np);
  const PlanChange change = compare_plans(*notified_, next);
  if (change == PlanChange{}) {
    settle_until_.reset();
    return;
  }
  // Hosts that arrive one after the other cost one epoch together, not one each. A removed host is
  // reported at once: its ranks are about to fail.
  if (!change.removed && roster_.is_connecting()) {
    if (!settle_until_) settle_until_ = now + options_.settle;
    if (now < *settle_until_) return;
  }
  settle_until_.reset();
  notified_ = next;
  // Compares with the running plan: a change that was taken back needs no message.
  const PlanChange all = compare_plans(epoch_seats_.plan(), next);
  if (all != PlanChange{}) actions.emplace_back(NotifyWorkers{all});
}

// Ranks that neither fail nor ask (they hang in a collective, say) are ended with their host.
void ElasticState::advance_broken(TimePoint now, Actions& actions) {
  connect_needed(now, actions);
  if (now >= phase_deadline_) {
    for (const Seat& seat : std::vector<Seat>(epoch_seats_.all())) {
      if (roster_.worker(seat.worker).phase != WorkerPhase::kRunning) continue;
      const std::string why = "rank " + std::to_string(roster_.worker(seat.worker).rank) +
                              " neither ended nor met the others again within " +
                              format_duration(options_.elastic_timeout) + " (--elastic-timeout)";
      Cause cause = launch_cause(failure::kElasticTimeout, why);
      cause.kind = Cause::Kind::kHost;
      cause.host = seat.incarnation;
      if (!first_failure_) first_failure_ = FirstFailure{std::move(cause), {}};
      fail_host(roster_.incarnation(seat.incarnation).host.name, why, now, actions);
    }
  }
  if (!any_seat(WorkerPhase::kRunning)) evaluate(now, actions);
}

// Every rank of the epoch has either asked for the next one or ended.
void ElasticState::evaluate(TimePoint now, Actions& actions) {
  const bool any_failed = any_seat(WorkerPhase::kFailed) && first_failure_;
  // A rank that finished knows that the work is done; the others' state can go no further.
  if (any_seat(WorkerPhase::kSucceeded)) {
    return finish(any_failed ? std::optional<Cause>(first_failure_->cause) : std::nullopt, actions);
  }
  if (!has_survivor()) {
    return finish_without_hosts(failure::kElasticState, "every rank was lost", actions);
  }
  leave_out_unreached(now, actions);
  if (options_.reset_limit && resets_ >= *options_.reset_limit) {
    return finish(launch_cause(failure::kResetLimit, "the job needs more than the " +
                                                         std::to_string(*options_.reset_limit) +
                                                         " resets that --reset-limit allows"),
                  actions);
  }
  ++resets_;
  wait_for_hosts(now);
}

// They would keep the others from meeting epoch after epoch.
void ElasticState::leave_out_unreached(TimePoint now, Actions& actions) {
  const std::vector<HostPlan>& hosts = plan().hosts;
  const auto first_seat_on = [&](const HostPlan& host) {
    return seats()[static_cast<std::size_t>(host.slots.front().rank)];
  };
  std::vector<UnreachedHosts::Member> members;
  for (const HostPlan& host : hosts) {
    const Roster::Worker& first = roster_.worker(first_seat_on(host).worker);
    members.push_back({host.host.name, first.phase == WorkerPhase::kAsking && first.has_state});
  }
  for (const auto& [place, missing] : unreached_.end_epoch(members)) {
    const std::string why = "no connection between it and " + few_names(missing) + " in " +
                            std::to_string(UnreachedHosts::kMostEpochs) + " meetings in a row";
    Cause cause = launch_cause(failure::kNetwork, why);
    cause.kind = Cause::Kind::kHost;
    cause.host = first_seat_on(hosts[place]).incarnation;
    if (!first_failure_) first_failure_ = FirstFailure{std::move(cause), {}};
    fail_host(hosts[place].host.name, why, now, actions);
  }
}

void ElasticState::finish_without_hosts(std::string_view code, const std::string& why,
                                        Actions& actions) {
  // The failure of a rank or host explains more than the fact that none is left.
  if (first_failure_) return finish(first_failure_->cause, actions);
  finish(launch_cause(code, why), actions);
}

void ElasticState::finish(std::optional<Cause> cause, Actions& actions) {
  phase_ = Phase::kOver;
  cause_ = std::move(cause);
  actions.emplace_back(EndJob{});
}

// --- what there is -------------------------------------------------------------------------------

// Hosts of the last epoch keep their order, so ranks change as little as possible; the others
// follow in the order of their first appearance.
std::vector<Host> ElasticState::hosts_in_order(TimePoint now) const {
  std::vector<Host> usable = registry_.available(now);
  const auto place = [this](const Host& host) {
    return std::find(host_order_.begin(), host_order_.end(), host.name) - host_order_.begin();
  };
  std::stable_sort(usable.begin(), usable.end(),
                   [&](const Host& a, const Host& b) { return place(a) < place(b); });
  return usable;
}

std::vector<HostOffer> ElasticState::offers(TimePoint now) const {
  const Roster::Survivors living = roster_.survivors();
  std::vector<HostOffer> found;
  for (Host& host : hosts_in_order(now)) {
    found.push_back(roster_.offer_of(std::move(host), living));
  }
  return found;
}

// While the job runs, no phase has a deadline.
std::optional<TimePoint> ElasticState::next_deadline() const {
  if (phase_ == Phase::kOver) return std::nullopt;
  std::optional<TimePoint> next;
  const auto consider = [&next](std::optional<TimePoint> when) {
    if (when && (!next || *when < *next)) next = when;
  };
  if (phase_ != Phase::kRunning) consider(phase_deadline_);
  consider(settle_until_);
  consider(next_return_);
  consider(roster_.next_deadline());
  return next;
}

HostOrder order_of_incarnation(const std::vector<HostOrder>& orders,
                               const std::vector<ElasticState::Seat>& seats,
                               IncarnationId incarnation, int epoch) {
  const auto is_its = [&](const RankOrder& rank) {
    return seats[static_cast<std::size_t>(rank.rank)].incarnation == incarnation;
  };
  const auto host = std::find_if(orders.begin(), orders.end(), [&](const HostOrder& order) {
    return std::any_of(order.ranks.begin(), order.ranks.end(), is_its);
  });
  HostOrder order = *host;
  // Ranks that come later need theirs, too.
  if (order.gpus_per_rank == "auto") order.gpus_per_rank = "1";
  std::erase_if(order.ranks, [&](const RankOrder& rank) { return !is_its(rank); });
  for (RankOrder& rank : order.ranks) {
    rank.rank = seats[static_cast<std::size_t>(rank.rank)].worker;
    // Workers that start later find standard input half read.
    if (epoch > 1) rank.stdin_source = StdinSource::kNull;
    rank.environment.emplace_back(rendezvous::env::kWorker, std::to_string(rank.rank));
    rank.environment.emplace_back(rendezvous::env::kRound, std::to_string(epoch));
  }
  return order;
}

}  // namespace hora::launcher::elastic
