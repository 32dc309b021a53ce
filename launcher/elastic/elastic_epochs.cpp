// How one epoch of an elastic job follows another.
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
  next_return_ = registry_.next_return(now);
}

// --- waiting for hosts ---------------------------------------------------------------------------

void ElasticState::wait_for_hosts(TimePoint now) {
  phase_ = Phase::kWaiting;
  phase_deadline_ = now + options_.elastic_timeout;
  settle_until_ = now + std::min(options_.settle, options_.elastic_timeout);
}

void ElasticState::advance_waiting(TimePoint now, Actions& actions) {
  if (epoch_ > 0 && !has_survivor()) {
    return finish_without_hosts(failure::kElasticState,
                                "no rank is left that knows the state of the training", actions);
  }
  if (!listed_) {
    if (now < phase_deadline_) return;
    return finish(launch_cause(failure::kElasticTimeout, shortage(threshold(), now)), actions);
  }
  connect_needed(now, actions);
  if (settle_until_ && (now >= *settle_until_ || !is_connecting())) settle_until_.reset();
  Plan plan = plan_epoch(offers(now), options_.max_np);
  const bool enough = plan.world_size >= threshold();
  if (enough && !settle_until_) return take_seats(std::move(plan), actions);
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

// An agent wherever there is room for more ranks, as far as the job may grow.
void ElasticState::connect_needed(TimePoint now, Actions& actions) {
  int left = options_.max_np.value_or(kMaxRanks);
  const Survivors living = survivors();
  for (const Host& host : hosts_in_order(now)) {
    if (left <= 0) return;
    const int slots = host.slots.value_or(0);
    left -= slots;
    int here = 0;
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
  for (const auto& [place, id] : living) {
    const auto is_its = [worker = id](const Seat& seat) { return seat.worker == worker; };
    if (std::none_of(seats_.begin(), seats_.end(), is_its)) dismissed_.push_back(id);
  }
  phase_ = Phase::kPreparing;
  phase_deadline_ = TimePoint::max();  // set when the clock is looked at
  if (!new_incarnations_.empty()) actions.emplace_back(PrepareEpoch{});
}

void ElasticState::advance_preparing(TimePoint now, Actions& actions) {
  if (phase_deadline_ == TimePoint::max()) phase_deadline_ = now + options_.start_timeout;
  if (now >= phase_deadline_) {
    for (const IncarnationId id : std::vector<IncarnationId>(new_incarnations_)) {
      if (incarnation(id).phase != IncarnationPhase::kOrdered) continue;
      fail_host(incarnation(id).host.name, "it was not ready within --start-timeout", now, actions);
    }
  }
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

// An agent takes one order only.
void ElasticState::discard_orders(Actions& actions) {
  for (const IncarnationId id : new_incarnations_) {
    if (incarnation(id).phase == IncarnationPhase::kOrdered ||
        incarnation(id).phase == IncarnationPhase::kReady) {
      end_incarnation(id, actions);
    }
  }
  new_incarnations_.clear();
  // Those who wait for a place still have the one of the epoch before.
  std::erase_if(seats_, [](const Seat& seat) { return seat.is_new; });
  for (const WorkerId id : dismissed_) seats_.push_back({id, worker(id).incarnation, false});
  dismissed_.clear();
}

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
  actions.emplace_back(BeginEpoch{});
}

// --- running -------------------------------------------------------------------------------------

void ElasticState::advance_running(TimePoint now, Actions& actions) {
  if (any_seat(WorkerPhase::kFailed) || any_seat(WorkerPhase::kAsking)) {
    phase_ = Phase::kBroken;
    phase_deadline_ = now + options_.elastic_timeout;
    settle_until_.reset();
    actions.emplace_back(BreakEpoch{});
    return;
  }
  if (any_seat(WorkerPhase::kSucceeded)) {
    settle_until_.reset();
    if (all_recorded()) finish(std::nullopt, actions);
    return;  // the others are about to end, too: nobody new is needed
  }
  connect_needed(now, actions);
  notify_if_changed(now, actions);
}

void ElasticState::notify_if_changed(TimePoint now, Actions& actions) {
  if (options_.reset_limit && resets_ >= *options_.reset_limit) return;
  const Plan next = plan_epoch(offers(now), options_.max_np);
  const PlanChange change = compare_plans(*notified_, next);
  if (change == PlanChange{}) {
    settle_until_.reset();
    return;
  }
  // Hosts that come one after the other cost one epoch, not one each.
  if (!change.removed && is_connecting()) {
    if (!settle_until_) settle_until_ = now + options_.settle;
    if (now < *settle_until_) return;
  }
  settle_until_.reset();
  notified_ = next;
  const PlanChange all = compare_plans(plan_, next);
  if (all != PlanChange{}) actions.emplace_back(NotifyWorkers{all});
}

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

// Every rank of the epoch has asked for the next one or has ended.
void ElasticState::evaluate(TimePoint now, Actions& actions) {
  const bool any_failed = any_seat(WorkerPhase::kFailed) && first_failure_;
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
  // What a rank or host failed of says more than that none is left.
  if (first_failure_) return finish(first_failure_->cause, actions);
  finish(launch_cause(code, why), actions);
}

void ElasticState::finish(std::optional<Cause> cause, Actions& actions) {
  phase_ = Phase::kOver;
  cause_ = std::move(cause);
  actions.emplace_back(EndJob{});
}

}  // namespace hora::launcher::elastic
