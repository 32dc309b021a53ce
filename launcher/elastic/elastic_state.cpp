// Translates each event into new phases of agent incarnations and workers. elastic_epochs.cpp then
// decides what follows for the epoch.
#include "launcher/elastic/elastic_state.h"

#include <algorithm>

#include "launcher/failures/exit_code.h"
#include "launcher/failures/failure_code.h"
#include "launcher/report/outcome_text.h"

namespace hora::launcher::elastic {

namespace {

std::string how_it_ended(const RankExit& exit) {
  if (!exit.spawn_error.empty()) return "could not be started: " + exit.spawn_error;
  if (exit.signal != 0) return "was killed by " + signal_name(exit.signal);
  return "exited with code " + std::to_string(exit.exit_code);
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

void ElasticState::tell(bool is_warning, std::string text, Actions& actions) {
  actions.emplace_back(Tell{is_warning, std::move(text)});
}

// A host that leaves the list keeps its running workers until the epoch ends, but an agent that
// only waits there is no longer needed.
void ElasticState::on(const HostsListed& e, TimePoint now, Actions& actions) {
  listed_ = true;
  discovery_problem_.clear();
  registry_.list(e.hosts);
  const std::vector<Host> usable = registry_.available(now);
  for (IncarnationId id = 0; id < incarnation_count(); ++id) {
    const AgentIncarnation& known = incarnation(id);
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

void ElasticState::on(const AgentGreeted& e, TimePoint, Actions&) {
  if (incarnation(e.incarnation).phase == IncarnationPhase::kConnecting)
    incarnation(e.incarnation).phase = IncarnationPhase::kIdle;
}

void ElasticState::on(const AgentReady& e, TimePoint, Actions&) {
  if (incarnation(e.incarnation).phase == IncarnationPhase::kOrdered)
    incarnation(e.incarnation).phase = IncarnationPhase::kReady;
}

// Workers of a lost agent count as failed, since the agent kills them when it loses the launcher.
// An agent that was asked to end is no failure.
void ElasticState::on(const AgentGone& e, TimePoint now, Actions& actions) {
  const IncarnationPhase before =
      std::exchange(incarnation(e.incarnation).phase, IncarnationPhase::kGone);
  bool lost_any = before == IncarnationPhase::kConnecting || before == IncarnationPhase::kIdle ||
                  before == IncarnationPhase::kOrdered || before == IncarnationPhase::kReady;
  for (Worker& each : workers_) {
    if (each.incarnation != e.incarnation) continue;
    if (each.phase == WorkerPhase::kLeaving) each.phase = WorkerPhase::kGone;
    const bool lived = each.phase == WorkerPhase::kRunning || each.phase == WorkerPhase::kAsking ||
                       each.phase == WorkerPhase::kOrdered;
    if (!lived) continue;
    each.phase = WorkerPhase::kFailed;
    lost_any = true;
  }
  if (before == IncarnationPhase::kEnding || before == IncarnationPhase::kGone || !lost_any) return;
  Failure failure = e.failure.value_or(
      Failure{std::string(failure::kAgent), "its agent ended before its ranks did", ""});
  const std::string why = failure.message + " [" + failure.code + "]";
  Cause cause;
  cause.kind = Cause::Kind::kHost;
  cause.host = e.incarnation;
  cause.failure = std::move(failure);
  cause.exit_code = kExitLauncher;
  // A failure is a possible cause of the job's end only if the host took part.
  const bool sat = std::any_of(seats_.begin(), seats_.end(), [&e](const Seat& seat) {
    return seat.incarnation == e.incarnation;
  });
  if (sat || epoch_ == 0) note_failure(std::move(cause), e.when);
  fail_host(incarnation(e.incarnation).host.name, why, now, actions);
}

// A worker may ask more than once; having state once suffices.
void ElasticState::on(const WorkerAsked& e, TimePoint, Actions&) {
  if (e.worker < 0 || e.worker >= worker_count()) return;
  Worker& asking = worker(e.worker);
  if (asking.phase != WorkerPhase::kRunning && asking.phase != WorkerPhase::kAsking) return;
  asking.phase = WorkerPhase::kAsking;
  asking.has_state = asking.has_state || e.has_state;
}

// A worker that was dismissed may end as it likes.
void ElasticState::on(const WorkerEnded& e, TimePoint now, Actions& actions) {
  if (e.worker < 0 || e.worker >= worker_count()) return;
  Worker& ended = worker(e.worker);
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
  fail_host(incarnation(ended.incarnation).host.name,
            "rank " + std::to_string(ended.rank) + " " + how_it_ended(e.exit), now, actions);
}

void ElasticState::on(const Tick&, TimePoint now, Actions& actions) {
  for (IncarnationId id = 0; id < incarnation_count(); ++id) {
    if (incarnation(id).phase == IncarnationPhase::kConnecting && now >= incarnation(id).deadline) {
      fail_host(incarnation(id).host.name, "it did not answer within --start-timeout", now,
                actions);
    }
  }
  // A dismissed worker that does not leave in time is ended.
  for (WorkerId id = 0; id < worker_count(); ++id) {
    Worker& each = worker(id);
    if (each.phase != WorkerPhase::kLeaving || !each.leave_by || now < *each.leave_by) continue;
    each.leave_by.reset();
    actions.emplace_back(EndWorker{id});
  }
}

// Hosts report at different speeds; the earliest failure by the clock is the cause.
void ElasticState::note_failure(Cause cause, std::chrono::nanoseconds when) {
  if (first_failure_ && first_failure_->when <= when) return;
  first_failure_ = FirstFailure{std::move(cause), when};
}

// Ends all agents on the host, and warns once per exclusion.
void ElasticState::fail_host(const std::string& host, std::string why, TimePoint now,
                             Actions& actions) {
  const bool was_barred = registry_.is_blacklisted(host, now);
  registry_.blacklist(host, now);
  if (!was_barred) {
    tell(true,
         "host " + host + ": " + why +
             (options_.cooldown ? "; it is left alone for a while"
                                : "; it takes no further part (--blacklist-cooldown-range)"),
         actions);
  }
  for (IncarnationId id = 0; id < incarnation_count(); ++id) {
    if (incarnation(id).host.name == host) end_incarnation(id, actions);
  }
}

void ElasticState::end_incarnation(IncarnationId id, Actions& actions) {
  AgentIncarnation& ending = incarnation(id);
  if (ending.phase == IncarnationPhase::kEnding || ending.phase == IncarnationPhase::kGone) return;
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
  actions.emplace_back(EndIncarnation{id});
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

// Keyed by host and local rank: that is how a worker keeps its seat.
ElasticState::Survivors ElasticState::survivors() const {
  Survivors found;
  for (WorkerId id = 0; id < worker_count(); ++id) {
    const Worker& each = worker(id);
    if (each.phase != WorkerPhase::kRunning && each.phase != WorkerPhase::kAsking) continue;
    found.emplace(std::make_pair(incarnation(each.incarnation).host.name, each.local_rank), id);
  }
  return found;
}

std::optional<IncarnationId> ElasticState::incarnation_on(const std::string& host,
                                                          IncarnationPhase phase) const {
  for (IncarnationId id = 0; id < incarnation_count(); ++id) {
    if (incarnation(id).phase == phase && incarnation(id).host.name == host) return id;
  }
  return std::nullopt;
}

// What each host can contribute: survivors without a gap, and room where an idle agent waits.
std::vector<HostOffer> ElasticState::offers(TimePoint now) const {
  const Survivors living = survivors();
  std::vector<HostOffer> found;
  for (Host& host : hosts_in_order(now)) {
    const int slots = host.slots.value_or(0);
    HostOffer offer;
    while (offer.survivors < slots && living.count({host.name, offer.survivors}) > 0) {
      ++offer.survivors;
    }
    if (incarnation_on(host.name, IncarnationPhase::kIdle)) offer.room = slots - offer.survivors;
    const auto first = living.find({host.name, 0});
    offer.has_state = first != living.end() && worker(first->second).has_state;
    offer.host = std::move(host);
    found.push_back(std::move(offer));
  }
  return found;
}

bool ElasticState::any_seat(WorkerPhase phase) const {
  return std::any_of(seats_.begin(), seats_.end(),
                     [&](const Seat& seat) { return worker(seat.worker).phase == phase; });
}

bool ElasticState::all_recorded() const { return !any_seat(WorkerPhase::kRunning); }

bool ElasticState::has_survivor() const { return any_seat(WorkerPhase::kAsking); }

bool ElasticState::is_connecting() const {
  return std::any_of(incarnations_.begin(), incarnations_.end(), [](const AgentIncarnation& each) {
    return each.phase == IncarnationPhase::kConnecting;
  });
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
  for (const AgentIncarnation& each : incarnations_) {
    if (each.phase == IncarnationPhase::kConnecting) consider(each.deadline);
  }
  for (const Worker& each : workers_) {
    if (each.phase == WorkerPhase::kLeaving) consider(each.leave_by);
  }
  return next;
}

}  // namespace hora::launcher::elastic
