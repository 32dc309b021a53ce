// Moves an elastic job from one epoch to the next. The cycle is: wait for enough hosts, take seats
// and prepare new agents, run, break when a rank fails or asks to meet again, then wait again. The
// class only decides; the supervisor carries out the actions.
#include <algorithm>

#include "launcher/elastic/elastic_state.h"
#include "launcher/failures/exit_code.h"
#include "launcher/failures/failure_code.h"
#include "launcher/text/duration.h"

namespace hora::launcher::elastic {

namespace {

Cause launch_cause(std::string_view code, std::string message) {
  Cause cause;
  cause.kind = Cause::Kind::kLaunch;
  cause.failure = {std::string(code), std::move(message), ""};
  cause.exit_code = exit_code_of_failure(code);
  return cause;
}

}  // namespace

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
  if (settle_until_ && (now >= *settle_until_ || !is_connecting())) settle_until_.reset();
  Plan plan = plan_epoch(offers(now), options_.max_np);
  const bool enough = plan.world_size >= threshold();
  if (enough && !settle_until_) return take_seats(std::move(plan), actions);
  // A fixed list of hosts cannot grow: fail now instead of waiting for the timeout.
  if (!enough && options_.hosts_are_fixed && !is_connecting() && !registry_.may_return(now)) {
    return finish_without_hosts(failure::kElasticHosts, shortage(threshold(), now), actions);
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
  const Survivors living = survivors();
  for (const Host& host : hosts_in_order(now)) {
    if (left <= 0) return;
    const int slots = host.slots.value_or(0);
    left -= slots;
    int here = 0;
    // Survivors occupy the lowest local ranks; the first gap ends the count.
    while (here < slots && living.count({host.name, here}) > 0) ++here;
    if (here == slots || incarnation_on(host.name, IncarnationPhase::kIdle) ||
        incarnation_on(host.name, IncarnationPhase::kConnecting)) {
      continue;
    }
    const IncarnationId id = incarnation_count();
    incarnations_.push_back({host, IncarnationPhase::kConnecting, now + options_.start_timeout});
    actions.emplace_back(Connect{id, host});
  }
}

// --- preparing -----------------------------------------------------------------------------------

// Turns the plan into seats: survivors keep theirs, and new workers take the rest. The first host's
// first rank broadcasts the state, so it must have it.
void ElasticState::take_seats(Plan plan, Actions& actions) {
  const Survivors living = survivors();
  const bool has_state = epoch_ == 0 || [&] {
    const auto first = living.find({plan.hosts.front().host.name, 0});
    return first != living.end() && worker(first->second).has_state;
  }();
  if (!has_state) {
    return finish_without_hosts(failure::kElasticState,
                                "no rank is left that knows the state of the training", actions);
  }
  plan_ = std::move(plan);
  seats_.clear();
  new_incarnations_.clear();
  dismissed_.clear();
  for (const HostPlan& host : plan_.hosts) {
    for (const Slot& slot : host.slots) {
      const auto survivor = living.find({host.host.name, slot.local_rank});
      if (survivor != living.end()) {
        seats_.push_back({survivor->second, worker(survivor->second).incarnation, false});
        continue;
      }
      // All new workers of a host share one agent, which takes one order.
      IncarnationId id = incarnation_on(host.host.name, IncarnationPhase::kOrdered).value_or(-1);
      if (id < 0) {
        id = *incarnation_on(host.host.name, IncarnationPhase::kIdle);
        incarnation(id).phase = IncarnationPhase::kOrdered;
        new_incarnations_.push_back(id);
      }
      workers_.push_back({id, slot.local_rank, slot.rank, WorkerPhase::kOrdered, epoch_ == 0, {}});
      seats_.push_back({worker_count() - 1, id, true});
    }
  }
  // A survivor without a seat (its host lost slots) leaves in order.
  for (const auto& [place, id] : living) {
    const auto is_its = [worker = id](const Seat& seat) { return seat.worker == worker; };
    if (std::none_of(seats_.begin(), seats_.end(), is_its)) dismissed_.push_back(id);
  }
  phase_ = Phase::kPreparing;
  // advance_preparing() sets it, since it knows the time.
  phase_deadline_ = TimePoint::max();
  if (!new_incarnations_.empty()) actions.emplace_back(PrepareEpoch{});
}

void ElasticState::advance_preparing(TimePoint now, Actions& actions) {
  if (phase_deadline_ == TimePoint::max()) phase_deadline_ = now + options_.start_timeout;
  if (now >= phase_deadline_) {
    // fail_host() changes the list, so iterate over a copy.
    for (const IncarnationId id : std::vector<IncarnationId>(new_incarnations_)) {
      if (incarnation(id).phase != IncarnationPhase::kOrdered) continue;
      fail_host(incarnation(id).host.name, "it was not ready within --start-timeout", now, actions);
    }
  }
  // A rank ended during the preparation, so the plan no longer holds.
  if (any_seat(WorkerPhase::kFailed) || any_seat(WorkerPhase::kSucceeded)) {
    discard_orders(actions);
    wait_for_hosts(now);
    return;
  }
  const bool all_ready = std::all_of(
      new_incarnations_.begin(), new_incarnations_.end(),
      [this](IncarnationId id) { return incarnation(id).phase == IncarnationPhase::kReady; });
  if (all_ready) begin_epoch(now, actions);
}

// An agent takes one order only, so agents with an order that is void must end.
void ElasticState::discard_orders(Actions& actions) {
  for (const IncarnationId id : new_incarnations_) {
    if (incarnation(id).phase == IncarnationPhase::kOrdered ||
        incarnation(id).phase == IncarnationPhase::kReady) {
      end_incarnation(id, actions);
    }
  }
  new_incarnations_.clear();
  // Workers that wait for a place still have their seat of the last epoch.
  std::erase_if(seats_, [](const Seat& seat) { return seat.is_new; });
  for (const WorkerId id : dismissed_) seats_.push_back({id, worker(id).incarnation, false});
  dismissed_.clear();
}

// All new agents are ready, so ranks and survivors may meet.
void ElasticState::begin_epoch(TimePoint now, Actions& actions) {
  ++epoch_;
  host_order_.clear();
  for (const HostPlan& host : plan_.hosts) host_order_.push_back(host.host.name);
  for (std::size_t rank = 0; rank < seats_.size(); ++rank) {
    Worker& seated = worker(seats_[rank].worker);
    seated.phase = WorkerPhase::kRunning;
    seated.rank = static_cast<int>(rank);
  }
  for (const IncarnationId id : new_incarnations_)
    incarnation(id).phase = IncarnationPhase::kRunning;
  // A dismissed worker leaves only if it still asks; one that has ended needs nothing.
  std::erase_if(dismissed_,
                [this](WorkerId id) { return worker(id).phase != WorkerPhase::kAsking; });
  for (const WorkerId id : dismissed_) {
    worker(id).phase = WorkerPhase::kLeaving;
    worker(id).leave_by = now + options_.leave;
  }
  notified_ = plan_;
  settle_until_.reset();
  first_failure_.reset();
  phase_ = Phase::kRunning;
  tell(false, "epoch " + std::to_string(epoch_) + ": " + describe_plan(plan_), actions);
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
    if (all_recorded()) finish(std::nullopt, actions);
    // The others are about to end as well, so no new rank is needed.
    return;
  }
  connect_needed(now, actions);
  notify_if_changed(now, actions);
}

// Tells the workers about a change; they come to the next epoch when they commit their state. With
// the reset limit used up they could not meet again, so do not disturb them.
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
  if (!change.removed && is_connecting()) {
    if (!settle_until_) settle_until_ = now + options_.settle;
    if (now < *settle_until_) return;
  }
  settle_until_.reset();
  notified_ = next;
  // Compares with the running plan: a change that was taken back needs no message.
  const PlanChange all = compare_plans(plan_, next);
  if (all != PlanChange{}) actions.emplace_back(NotifyWorkers{all});
}

// Ranks that neither fail nor ask (they hang in a collective, say) are ended with their host.
void ElasticState::advance_broken(TimePoint now, Actions& actions) {
  connect_needed(now, actions);
  if (now >= phase_deadline_) {
    for (const Seat& seat : std::vector<Seat>(seats_)) {
      if (worker(seat.worker).phase != WorkerPhase::kRunning) continue;
      const std::string why = "rank " + std::to_string(worker(seat.worker).rank) +
                              " neither ended nor came to the next epoch within " +
                              format_duration(options_.elastic_timeout) + " (--elastic-timeout)";
      Cause cause = launch_cause(failure::kElasticTimeout, why);
      cause.kind = Cause::Kind::kHost;
      cause.host = seat.incarnation;
      if (!first_failure_) first_failure_ = FirstFailure{std::move(cause), {}};
      fail_host(incarnation(seat.incarnation).host.name, why, now, actions);
    }
  }
  if (all_recorded()) evaluate(now, actions);
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
  if (options_.reset_limit && resets_ >= *options_.reset_limit) {
    return finish(
        launch_cause(failure::kResetLimit, "the ranks would have to meet anew once more than the " +
                                               std::to_string(*options_.reset_limit) +
                                               " times of --reset-limit"),
        actions);
  }
  ++resets_;
  wait_for_hosts(now);
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

}  // namespace hora::launcher::elastic
