// SPDX-License-Identifier: Apache-2.0
// The loop of the runtime. One round of step(): take what callers submitted, advance the fast path,
// let rank 0 hand out what has become ready, look at running steps, wait, then handle the messages
// that arrived. All state belongs to the thread that drives (driver.h); only the queue, the set
// table, wake() and stop_now() are for other threads.
#include "collectives/runtime/engine.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include "collectives/control/messages.h"
#include "collectives/runtime/channel_bootstrap.h"
#include "collectives/runtime/fusion_plan.h"
#include "rendezvous/os/log.h"

namespace hora::collectives {

Engine::Engine(const World& world, std::unique_ptr<ControlChannel> channel, Observer& observer,
               std::optional<Heartbeat> heartbeat)
    : world_(world),
      observer_(observer),
      mailbox_(std::move(channel), world.settings.rank),
      pool_(world, &mailbox_.oob()),
      shutdown_(world, mailbox_, pool_, observer,
                [this](const std::string& text) { fail_operations(text); }),
      stalls_(world, mailbox_, shutdown_, std::move(heartbeat)),
      negotiator_({world, mailbox_, sets_, queue_, observer, tuner_, shutdown_.interruption()}),
      steps_({pool_, queue_, observer, tuner_, stalls_, shutdown_}),
      fast_path_({world, mailbox_, sets_, queue_, observer, tuner_, negotiator_, steps_, stalls_,
                  shutdown_}) {}

// The watchdog goes first: its thread calls abort() on backends that are about to be destroyed.
Engine::~Engine() {
  stalls_.stop();
  for (const auto& [id, set] : sets_) pool_.destroy_backends(*set);
}

Status Engine::set_up(Listeners listeners) {
  meet_on_host(std::move(listeners.on_host));
  pool_.begin(std::move(listeners.links));
  Status created = create_backends(std::move(listeners.between_hosts));
  mailbox_.oob().leave_host();
  if (created || world_.settings.size == 1) return created;
  return fail_to_join(created.error());
}

// The other ranks learn why their wait fails. The text is that of the shutdown, not of `error`: if
// another rank failed first, all ranks report that one.
Error Engine::fail_to_join(const Error& error) {
  shutdown_.data_plane_failed(error);
  linger();
  return make_error(error.code, shutdown_.text());
}

// Only where there are other hosts: on one, rank 0 is as near.
void Engine::meet_on_host(LocalListener listener) {
  const auto own = world_.hosts[static_cast<std::size_t>(world_.settings.rank)];
  std::vector<std::string> cards;
  int place = 0;
  for (std::size_t rank = 0; rank < world_.hosts.size(); ++rank) {
    if (world_.hosts[rank] != own) continue;
    if (static_cast<int>(rank) < world_.settings.rank) ++place;
    cards.push_back(world_.rank_infos[rank].host_card);
  }
  if (cards.size() == world_.hosts.size() || !can_meet_on_host(cards)) return;
  mailbox_.oob().meet_on_host(scope_within(0, own), std::move(listener), std::move(cards), place);
}

Status Engine::create_backends(OwnSockets sockets) {
  // The order matters. The channel comes first, because everything after it uses the channel; then
  // the watchdog, so that a rank which stops during the rest is detected; then the backends, which
  // may block in a library.
  mailbox_.oob().define_scope(0, world_.ranks());
  HORA_TRY(mailbox_.extend([&](std::unique_ptr<ControlChannel>& channel) {
    return extend_channel(world_, mailbox_.oob(), channel, std::move(sockets), met_);
  }));
  // In deterministic mode, the order of additions must not depend on measurements.
  const auto measured =
      world_.agreed().deterministic ? std::chrono::microseconds(0) : met_.round_trip;
  pool_.set_round_trip(measured);
  fast_path_.set_round_trip(measured);
  HORA_TRY(stalls_.start(sets_.table()));
  HORA_TRY(make_set(0, world_.ranks()));
  for (const auto& ranks : world_.agreed().process_sets) {
    std::vector<std::int32_t> sorted = ranks;
    // The index of a rank in its set follows from this order, so it must be the same on all ranks.
    std::sort(sorted.begin(), sorted.end());
    if (Coordinator* const coordinator = negotiator_.coordinator()) coordinator->add_set(sorted);
    HORA_TRY(make_set(static_cast<std::int32_t>(sets_.size()), std::move(sorted)));
  }
  // After the backends of the world: what can be tuned depends on them.
  tuner_.start(world_, sets_.world());
  log_backends();
  return Ok{};
}

// Logs which backends the job uses and why it does not use the others.
void Engine::log_backends() {
  if (!os::log_enabled(os::LogLevel::kDebug)) return;
  os::log_debug("backends", "ready after " + std::to_string(mailbox_.oob().exchanges()) +
                                " exchanges with rank 0");
  std::string used;
  for (const std::string& id : pool_.enabled()) used += (used.empty() ? "" : ", ") + id;
  os::log_debug("backends", "in use: " + used);
  for (const auto& [id, why] : pool_.left_out()) {
    os::log_debug("backends", "not " + id + ": " + why);
  }
  for (const auto& [id, note] : pool_.notes()) os::log_debug("backends", id + ": " + note);
  std::istringstream rows(format_table(pool_.table()));
  for (std::string row; std::getline(rows, row);) os::log_debug("backends", "selected: " + row);
}

Status Engine::make_set(std::int32_t id, std::vector<std::int32_t> ranks) {
  auto set = std::make_unique<ProcessSet>();
  set->id = id;
  set->cache = ResponseCache(static_cast<std::size_t>(world_.agreed().cache_capacity));
  set->ranks = std::move(ranks);
  const auto mine = std::find(set->ranks.begin(), set->ranks.end(), world_.settings.rank);
  // A rank that is not a member keeps index -1 and takes part in the creation only.
  if (mine != set->ranks.end()) set->index = static_cast<int>(mine - set->ranks.begin());
  const auto host = [&](std::int32_t rank) { return world_.hosts[static_cast<std::size_t>(rank)]; };
  set->one_host = std::all_of(set->ranks.begin(), set->ranks.end(), [&](std::int32_t rank) {
    return host(rank) == host(set->ranks.front());
  });
  mailbox_.oob().define_scope(id, set->ranks);
  HORA_TRY(pool_.create_backends(*set));
  // A set keeps the order of additions if every backend that may run its reductions does.
  set->keeps_order = std::all_of(set->backends.begin(), set->backends.end(),
                                 [](const SetBackend& each) { return each.has(kFixedOrder); });
  if (id == 0) fast_path_.set_up(*set);
  sets_.add(std::move(set));
  // A backend that depends on the calling thread takes the waiters away for good: from then on only
  // the runtime's thread drives. Pairs with the acquire load in waiters().
  waiters_.store(pool_.any_thread() ? mailbox_.channel().waiters() : nullptr,
                 std::memory_order_release);
  return Ok{};
}

const LeaderPlan* Engine::leaders() const {
  const LeaderFastPath* const leaders = mailbox_.leaders();
  return leaders == nullptr ? nullptr : &leaders->plan();
}

bool Engine::step(Deadline deadline, bool take) {
  bool worked = take && take_submissions();
  if (fast_path_.poll()) worked = true;
  fast_path_.call_if_late();
  if (coordinate()) worked = true;
  if (!ended() && steps_.look()) worked = true;
  // Checked again, because each of the calls above may end the world.
  if (ended()) return true;
  // How long to sleep: not at all while something can be done without a message; otherwise until
  // the earliest moment at which this rank has to act by itself.
  if (steps_.something_under_way()) {  // its end comes without a message
    deadline = kNoWait;
    worked = true;
  } else if (!worked &&
             negotiator_.gathering_until()) {  // the driving thread has to be back by then
    deadline = *negotiator_.gathering_until();
    worked = true;
  } else {
    deadline =
        worked
            ? kNoWait
            : std::min({deadline, stalls_.next_check(negotiator_.coordinator()), fast_path_due()});
  }
  update_watchdog();
  mailbox_.wait(deadline);
  // Posts that precede a message must be handled before it.
  if (fast_path_.poll() || !mailbox_.empty()) worked = true;
  // A submission in the meantime has woken only the poll above.
  if (take && queue_.something_waits()) worked = true;
  unfinished_ = !mailbox_.empty();
  // One at a time: an operation that a message starts may fail, and a later message may contain the
  // reason.
  while (!ended() && !mailbox_.empty()) handle(mailbox_.take());
  stalls_.look(negotiator_.coordinator(), fast_path_.operation());
  // Last, so that a failure notice among the messages decides the reason if there is one.
  if (const auto reason = shutdown_.interruption().stop_reason(); reason && !ended()) {
    shutdown_.give_up(*reason);
  }
  update_watchdog();
  return worked;
}

void Engine::progress_inline(const Operation& operation) {
  // A caller that waits for a small operation often finds it complete by the time it has polled
  // once: then it never parks.
  const auto on_fast_path = [&] { return fast_path_.operation() == &operation; };
  if (ended() || !take_submissions() || !on_fast_path()) return;
  fast_path_.poll();
  // For each of the turns that it may take.
  for (int turn = 0; turn < 2 && on_fast_path(); ++turn) {
    if (!mailbox_.channel().waiters()->watch()) return;
    fast_path_.poll();
  }
}

AtOnce Engine::run_at_once(const OperationPtr& operation) noexcept {
  if (ended() || !queue_.begin_alone(*operation)) return AtOnce::kNotBegun;
  const AtOnce outcome = fast_path_.run_at_once(operation, *mailbox_.channel().waiters());
  if (outcome == AtOnce::kUnderWay) {
    queue_.keep_in_flight(*operation);
  } else {
    queue_.end_alone();
  }
  return outcome;
}

bool Engine::take_submissions() {
  queue_.take(taken_);
  if (taken_.empty()) return false;
  if (taken_.size() == 1 && fast_path_.take(taken_.front())) return true;
  fast_path_.hold_join_back(taken_);
  if (taken_.empty()) return true;
  for (const OperationPtr& operation : taken_) {
    // The request for the end carries how many fast-path turns this rank has seen decided.
    if (operation->request.action == Action::kShutdown) fast_path_.note_turn(operation->request);
  }
  // A thread is awake to read the answer. Had a caller left the thread parked (Driver::drive), the
  // other rank would ring it.
  if (Waiters* const waiters = this->waiters()) waiters->unpark();
  negotiator_.ask(taken_, false);
  return true;
}

// Rank 0. Returns whether there was anything to do.
bool Engine::coordinate() {
  if (!world_.coordinates()) return false;
  if (const SequencePtr sequence = negotiator_.take_ready_together()) {
    carry_out(*sequence);
    return true;
  }
  const std::vector<AgreedOp> list = negotiator_.take_ready();
  if (list.empty()) return false;
  carry_out(list);
  return true;
}

// Shows the watchdog for which process set this rank waits, wherever the driving thread sleeps.
void Engine::update_watchdog() {
  if (!stalls_.watches()) return;
  if (steps_.something_under_way()) return steps_.update_watchdog();
  if (fast_path_.operation() != nullptr) return stalls_.waits_in(0);
  // Operations of several sets may be in flight; the first set found stands for all.
  const auto waits = [](const auto& set) {
    return !set.second->pending.empty() || set.second->joining != nullptr;
  };
  const auto found = std::find_if(sets_.begin(), sets_.end(), waits);
  if (found == sets_.end()) return stalls_.waits_in(Wait::kNowhere);
  if (!found->second->pending.empty()) return stalls_.waits_in(found->first);
  // A rank that has joined waits for all others, although none has submitted anything. The number
  // differs from those of steps, which count from 1.
  stalls_.in_step(UINT64_MAX - static_cast<std::uint64_t>(found->first), found->first,
                  [] { return std::string("join"); });
}

void Engine::handle(const Incoming& incoming) {
  // Exchanges between setups (adding a process set) share the channel with everything else, so the
  // out-of-band part looks at each message first.
  if (incoming.gone) return shutdown_.handle_failure_notice(incoming);
  if (mailbox_.oob().handle(incoming)) return;
  const std::string_view payload = std::string_view(incoming.bytes).substr(1);
  bool well_formed = true;
  switch (kind_of(incoming.bytes)) {
    case ControlMessage::kRequests:
      well_formed = negotiator_.handle_requests(incoming.rank, payload);
      break;
    case ControlMessage::kResponses:
      if (const SequencePtr sequence = negotiator_.answered_together(payload)) {
        return carry_out(*sequence);
      }
      if (const auto list = negotiator_.handle_responses(payload)) return carry_out(*list);
      return shutdown_.give_up("rank 0 sent a malformed response");
    case ControlMessage::kInFull:
      well_formed = negotiator_.handle_in_full(payload);
      break;
    case ControlMessage::kPosted:
      well_formed = fast_path_.handle_posted(incoming.rank, payload);
      break;
    case ControlMessage::kCall:
      well_formed = fast_path_.handle_call(payload);
      break;
    // All of these are about the end of the world; Shutdown weighs them against each other.
    case ControlMessage::kLost:
    case ControlMessage::kBroken:
    case ControlMessage::kFailed:
    case ControlMessage::kAbort:
      return shutdown_.handle_failure_notice(incoming);
    case ControlMessage::kFinished:
      return shutdown_.note_finished(incoming.rank);
    default:
      // Peers are authenticated and of the same version (handshake), so this is a bug or memory
      // corruption, never an attack. The world ends instead of guessing.
      return shutdown_.give_up(world_.name_rank(incoming.rank) +
                               " sent an unexpected control message");
  }
  if (well_formed) return;
  shutdown_.give_up(world_.name_rank(incoming.rank) + " sent a malformed control message");
}

void Engine::carry_out(const std::vector<AgreedOp>& list) {
  std::vector<const Response*> responses;
  responses.reserve(list.size());
  for (const AgreedOp& each : list) responses.push_back(each.response);
  // Before anything runs: the timeline shows the agreement even if the step then blocks.
  observer_.agreed(responses, Clock::now());
  std::vector<const AgreedOp*> chosen;
  for (const auto& step : plan_steps(responses)) {
    if (ended()) return;
    chosen.clear();
    for (std::size_t index : step) chosen.push_back(&list[index]);
    run_step(chosen);
  }
}

// Every rank computes the same plan from the same list, so fused steps agree without a message.
std::vector<std::vector<std::size_t>> Engine::plan_steps(
    const std::vector<const Response*>& responses) const {
  // Rank 0's choice, so that all ranks make the same plan.
  const Groups groups = world_.agreed().group_fusion ? Groups::kMixed : Groups::kApart;
  return plan_fusion(
      responses, [this](std::int32_t id) { return threshold_of(id); }, groups);
}

std::int64_t Engine::threshold_of(std::int32_t id) const {
  // Which operations share a step depends on their timing. In deterministic mode, that must not
  // change the order of additions.
  const ProcessSet* const set = sets_.find(id);
  const bool may_fuse = !world_.agreed().deterministic || (set != nullptr && set->keeps_order);
  return may_fuse ? tuner_.parameters().fusion_threshold_bytes : 0;
}

// Some ranks carry out the sequence, others its members, whatever each has been doing since it
// asked for them: the plan depends on the responses alone, so the steps are the same.
void Engine::carry_out(Sequence& sequence) {
  ProcessSet& set = *sets_.find(sequence.process_set);
  if (const std::int64_t threshold = threshold_of(set.id); sequence.threshold_bytes != threshold) {
    sequence.one_step = plan_steps(sequence.responses).size() == 1;
    sequence.threshold_bytes = threshold;
  }
  // While one of several steps runs, the operations of the later ones are pending.
  if (!sequence.one_step || set.pending.together().get() != &sequence) {
    return carry_out(negotiator_.members(sequence));
  }
  observer_.agreed(sequence.responses, Clock::now());
  steps_.run(set, sequence.responses, set.pending.take_together());
}

void Engine::run_step(const std::vector<const AgreedOp*>& step) {
  const Response& first = *step.front()->response;
  const bool alone = first.agreed.action == Action::kShutdown ||
                     first.agreed.action == Action::kAddProcessSet ||
                     first.agreed.action == Action::kProcessSetOf ||
                     first.agreed.action == Action::kRemoveProcessSet;
  // These change what running steps refer to: the sets, the backends, the connections.
  if (alone && !steps_.wait_for_steps(1)) return;
  if (first.agreed.action == Action::kShutdown) return leave(first);
  ProcessSet* const found = sets_.find(first.agreed.process_set);
  if (found == nullptr || found->index < 0) return;  // coordinated only
  ProcessSet& set = *found;
  if (first.status == HORA_OK) {
    switch (first.agreed.action) {
      case Action::kAddProcessSet:
      case Action::kProcessSetOf:
        return add_set(first, take_pending(set, *step.front()));
      case Action::kRemoveProcessSet:
        return remove_set(first, take_pending(set, *step.front()));
      case Action::kTune:
        if (!tuner_.change(first, Clock::now()))
          shutdown_.give_up("rank 0 sent malformed parameters");
        return;
      // Completes below like an error: it has a number and no step.
      case Action::kJoin:
        break;
      default:
        return steps_.run(set, step);
    }
  }
  const OperationPtr operation = take_pending(set, *step.front());
  if (operation == nullptr) return;  // of a group that this rank sees otherwise
  if (!first.numbers.empty()) operation->number = first.numbers.front();
  queue_.finish(operation, first.status, first.error);
}

// A rank has requested the end: all ranks leave together.
void Engine::leave(const Response& response) {
  fast_path_.catch_up(response.agreed);
  if (ended()) return;
  stalls_.stop();
  shutdown_.leave(static_cast<int>(response.numbers.at(0)));
}

void Engine::add_set(const Response& response, const OperationPtr& operation) {
  const auto id = static_cast<std::int32_t>(response.numbers.at(0));
  const std::vector<std::int32_t> ranks(response.agreed.shape.begin(), response.agreed.shape.end());
  if (sets_.find(id) != nullptr) {  // another rank has asked for it before
    if (operation != nullptr) operation->number = id;
    return queue_.finish(operation, HORA_OK, {});
  }
  // Creating backends takes messages, and only this thread waits for them.
  if (FastPath* fast_path = mailbox_.channel().fast_path()) fast_path->set_attentive(false);
  const Status made = make_set(id, ranks);
  if (FastPath* fast_path = mailbox_.channel().fast_path()) fast_path->set_attentive(true);
  // The other ranks of the world are in the same exchange and would wait for this one.
  if (!made) shutdown_.data_plane_failed(made.error().with_context("adding a process set"));
  if (operation == nullptr) return;
  if (!made) return queue_.finish(operation, HORA_ABORTED, shutdown_.text());
  operation->number = id;
  queue_.finish(operation, HORA_OK, {});
}

void Engine::remove_set(const Response& response, const OperationPtr& operation) {
  const auto id = static_cast<std::int32_t>(response.agreed.shape.at(0));
  if (const std::unique_ptr<ProcessSet> set = sets_.take(id)) {
    // Callers may have submitted to the set before they learned of its removal.
    queue_.finish(set->pending.take_all(), HORA_ABORTED, "the process set was removed");
    if (set->joining) queue_.finish(set->joining, HORA_ABORTED, "the process set was removed");
    pool_.destroy_backends(*set);
    mailbox_.oob().forget_scope(id);
  }
  if (operation != nullptr) queue_.finish(operation, HORA_OK, {});
}

// Fails all operations: the world has ended for this reason.
void Engine::fail_operations(const std::string& text) {
  steps_.abandon();
  // The queue is closed first: nothing is submitted after the last operation has been failed.
  std::vector<OperationPtr> open = queue_.close(text);
  if (OperationPtr operation = fast_path_.take_back()) open.push_back(std::move(operation));
  for (const auto& [id, set] : sets_) {
    for (OperationPtr& operation : set->pending.take_all()) open.push_back(std::move(operation));
    if (set->joining) open.push_back(std::exchange(set->joining, nullptr));
  }
  queue_.finish(std::move(open), HORA_ABORTED, text);
}

}  // namespace hora::collectives
