#include "collectives/runtime/engine.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include "collectives/control/messages.h"
#include "collectives/fusion/fusion_plan.h"
#include "collectives/runtime/channel_bootstrap.h"
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

Engine::~Engine() {
  stalls_.stop();
  for (const auto& [id, set] : sets_) pool_.destroy_backends(*set);
}

Status Engine::set_up() {
  const Status created = create_backends();
  if (created || world_.settings.size == 1) return created;
  return fail_to_join(created.error());
}

// The others learn why they wait in vain; and it may be that this rank did.
Error Engine::fail_to_join(const Error& error) {
  shutdown_.data_plane_failed(error);
  linger();
  return make_error(error.code, shutdown_.text());
}

Status Engine::create_backends() {
  mailbox_.oob().define_scope(0, world_.ranks());
  HORA_TRY(mailbox_.extend([this](std::unique_ptr<ControlChannel>& channel) {
    return extend_channel(world_, mailbox_.oob(), channel, why_no_fast_path_);
  }));
  HORA_TRY(stalls_.start(sets_.table()));
  HORA_TRY(make_set(0, world_.ranks()));
  for (const auto& ranks : world_.agreed().process_sets) {
    std::vector<std::int32_t> sorted = ranks;
    std::sort(sorted.begin(), sorted.end());
    if (Coordinator* const coordinator = negotiator_.coordinator()) coordinator->add_set(sorted);
    HORA_TRY(make_set(static_cast<std::int32_t>(sets_.size()), std::move(sorted)));
  }
  tuner_.start(world_, sets_.world());
  log_backends();
  return Ok{};
}

// What the job uses, and how, for who wants to know why it is not faster.
void Engine::log_backends() const {
  if (!os::log_enabled(os::LogLevel::kDebug)) return;
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
  if (mine != set->ranks.end()) set->index = static_cast<int>(mine - set->ranks.begin());
  const auto host = [&](std::int32_t rank) { return world_.hosts[static_cast<std::size_t>(rank)]; };
  set->one_host = std::all_of(set->ranks.begin(), set->ranks.end(), [&](std::int32_t rank) {
    return host(rank) == host(set->ranks.front());
  });
  mailbox_.oob().define_scope(id, set->ranks);
  HORA_TRY(pool_.create_backends(*set));
  set->keeps_order = std::all_of(set->backends.begin(), set->backends.end(),
                                 [](const SetBackend& each) { return each.has(kFixedOrder); });
  if (id == 0) fast_path_.set_up(*set);
  sets_.add(std::move(set));
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
  if (ended()) return true;
  if (steps_.something_under_way()) {  // its end comes without a message
    deadline = kNoWait;
    worked = true;
  } else if (!worked && negotiator_.gathering_until()) {  // whoever drives has to be back by then
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
  // What the others had posted before they sent a message comes before it.
  if (fast_path_.poll() || !mailbox_.empty()) worked = true;
  // Whoever submitted this meanwhile has woken nobody but the poll above.
  if (take && queue_.something_waits()) worked = true;
  unfinished_ = !mailbox_.empty();
  // One at a time: an operation that is begun by a message may fail, and then the reason may be
  // among the messages behind it.
  while (!ended() && !mailbox_.empty()) handle(mailbox_.take());
  stalls_.look(negotiator_.coordinator());
  if (const auto reason = shutdown_.interruption().stop_reason(); reason && !ended()) {
    shutdown_.give_up(*reason);
  }
  update_watchdog();
  return worked;
}

void Engine::progress_inline(const Operation& operation) {
  const auto on_fast_path = [&] { return fast_path_.operation() == &operation; };
  if (ended() || !take_submissions() || !on_fast_path()) return;
  fast_path_.poll();
  if (!on_fast_path()) return;
  if (mailbox_.channel().waiters()->watch()) fast_path_.poll();
}

bool Engine::take_submissions() {
  queue_.take(taken_);
  if (taken_.empty()) return false;
  if (taken_.size() == 1 && fast_path_.take(taken_.front())) return true;
  for (const OperationPtr& operation : taken_) {
    if (operation->request.action == Action::kShutdown) fast_path_.note_turn(operation->request);
  }
  negotiator_.ask(taken_, false);
  return true;
}

// Rank 0. Answers whether there was something to do.
bool Engine::coordinate() {
  if (!world_.coordinates()) return false;
  const std::vector<AgreedOp> list = negotiator_.take_ready();
  if (list.empty()) return false;
  carry_out(list);
  return true;
}

// The watchdog is to miss the others as long as this rank waits for them, wherever whoever drives
// sleeps.
void Engine::update_watchdog() {
  if (!stalls_.watches()) return;
  if (steps_.something_under_way()) return steps_.update_watchdog();
  if (fast_path_.operation() != nullptr) return stalls_.waits_in(0);
  const auto waits = [](const auto& set) {
    return set.second->pending.size() > 0 || set.second->joining != nullptr;
  };
  const auto found = std::find_if(sets_.begin(), sets_.end(), waits);
  if (found == sets_.end()) return stalls_.waits_in(Wait::kNowhere);
  if (found->second->pending.size() > 0) return stalls_.waits_in(found->first);
  // A rank that has joined waits for all others, although none has submitted anything. The number
  // differs from those of steps, which count from 1.
  stalls_.in_step(UINT64_MAX - static_cast<std::uint64_t>(found->first), found->first,
                  [] { return std::string("join"); });
}

void Engine::handle(Incoming incoming) {
  if (incoming.gone) return shutdown_.handle_failure_notice(incoming);
  if (mailbox_.oob().handle(incoming)) return;
  const std::string_view payload = std::string_view(incoming.bytes).substr(1);
  bool well_formed = true;
  switch (kind_of(incoming.bytes)) {
    case ControlMessage::kRequests:
      well_formed = negotiator_.handle_requests(incoming.rank, payload);
      break;
    case ControlMessage::kResponses:
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
    case ControlMessage::kBroken:
    case ControlMessage::kFailed:
    case ControlMessage::kAbort:
      return shutdown_.handle_failure_notice(incoming);
    case ControlMessage::kFinished:
      return shutdown_.note_finished(incoming.rank);
    default:
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
  observer_.agreed(responses, Clock::now());
  const auto threshold_of = [this](std::int32_t id) {
    // What shares a step depends on when the operations came; where that could change the order in
    // which numbers are added, it must not happen.
    const ProcessSet* const set = sets_.find(id);
    const bool may_fuse = !world_.agreed().deterministic || (set != nullptr && set->keeps_order);
    return may_fuse ? tuner_.parameters().fusion_threshold_bytes : 0;
  };
  std::vector<const AgreedOp*> chosen;
  for (const auto& step : plan_fusion(responses, threshold_of)) {
    if (ended()) return;
    chosen.clear();
    for (std::size_t index : step) chosen.push_back(&list[index]);
    run_step(chosen);
  }
}

void Engine::run_step(const std::vector<const AgreedOp*>& step) {
  const Response& first = *step.front()->response;
  const bool alone = first.agreed.action == Action::kShutdown ||
                     first.agreed.action == Action::kAddProcessSet ||
                     first.agreed.action == Action::kRemoveProcessSet;
  if (alone && !steps_.wait_for_steps(1)) return;
  if (first.agreed.action == Action::kShutdown) return leave(first);
  ProcessSet* const found = sets_.find(first.agreed.process_set);
  if (found == nullptr || found->index < 0) return;  // coordinated only
  ProcessSet& set = *found;
  if (first.status == HORA_OK) {
    switch (first.agreed.action) {
      case Action::kAddProcessSet:
        return add_set(first, take_pending(set, *step.front()));
      case Action::kRemoveProcessSet:
        return remove_set(first, take_pending(set, *step.front()));
      case Action::kTune:
        if (!tuner_.change(first, Clock::now()))
          shutdown_.give_up("rank 0 sent malformed parameters");
        return;
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

// A rank has asked for the end: all leave together.
void Engine::leave(const Response& response) {
  fast_path_.catch_up(response.agreed);
  if (ended()) return;
  stalls_.stop();
  shutdown_.leave(static_cast<int>(response.numbers.at(0)));
}

void Engine::add_set(const Response& response, const OperationPtr& operation) {
  const auto id = static_cast<std::int32_t>(response.numbers.at(0));
  const std::vector<std::int32_t> ranks(response.agreed.shape.begin(), response.agreed.shape.end());
  // Making it takes messages, which nobody but this waits for.
  if (FastPath* fast_path = mailbox_.channel().fast_path()) fast_path->set_attentive(false);
  const Status made = make_set(id, ranks);
  if (FastPath* fast_path = mailbox_.channel().fast_path()) fast_path->set_attentive(true);
  if (!made) shutdown_.data_plane_failed(made.error().with_context("adding a process set"));
  if (operation == nullptr) return;
  if (!made) return queue_.finish(operation, HORA_ABORTED, shutdown_.text());
  operation->number = id;
  queue_.finish(operation, HORA_OK, {});
}

void Engine::remove_set(const Response& response, const OperationPtr& operation) {
  const auto id = static_cast<std::int32_t>(response.agreed.shape.at(0));
  if (const std::unique_ptr<ProcessSet> set = sets_.take(id)) {
    queue_.finish(set->pending.take_all(), HORA_ABORTED, "the process set was removed");
    if (set->joining) queue_.finish(set->joining, HORA_ABORTED, "the process set was removed");
    pool_.destroy_backends(*set);
    mailbox_.oob().forget_scope(id);
  }
  if (operation != nullptr) queue_.finish(operation, HORA_OK, {});
}

// The world has ended, for this reason.
void Engine::fail_operations(const std::string& text) {
  steps_.abandon();
  std::vector<OperationPtr> open = queue_.close(text);
  if (OperationPtr operation = fast_path_.take_back()) open.push_back(std::move(operation));
  for (const auto& [id, set] : sets_) {
    for (OperationPtr& operation : set->pending.take_all()) open.push_back(std::move(operation));
    if (set->joining) open.push_back(std::exchange(set->joining, nullptr));
  }
  queue_.finish(open, HORA_ABORTED, text);
}

}  // namespace hora::collectives
