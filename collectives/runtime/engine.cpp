#include "collectives/runtime/engine.h"

#include <algorithm>
#include <sstream>

#include "collectives/control/messages.h"
#include "collectives/fusion/fusion_plan.h"
#include "rendezvous/os/log.h"

namespace hora::collectives {

namespace {

// They also add the numbers of each element in the order of the ranks, whatever else is in the
// step.
bool is_own_backend(const std::string& id) { return id == "self" || id == "shm"; }

// A vendor's library may mind which thread calls it.
bool any_thread_may_call(const std::string& id) {
  return is_own_backend(id) || id == "gloo" || id == kHierarchical;
}

}  // namespace

Engine::Engine(const World& world, std::unique_ptr<ControlChannel> channel, Observer& observer,
               std::optional<Heartbeat> signs)
    : world_(world),
      observer_(observer),
      channel_(std::move(channel)),
      oob_(std::in_place, *channel_, world.settings.rank),
      pool_(world, &*oob_),
      stalls_({world.settings.stall_check, world.settings.stall_warning,
               world.settings.stall_shutdown}),
      signs_(std::move(signs)) {
  oob_->break_off_when([this] { return !silent_ranks().empty(); });
  look_for_late_ranks();
  if (coordinates()) {
    coordinator_.emplace(world.settings.size);
    finished_.assign(static_cast<std::size_t>(world.settings.size), 0);
    finished_[0] = 1;
    if (const std::string text = stalls_.complaint(); !text.empty()) os::log_warn("stall", text);
  }
}

Engine::~Engine() {
  watchdog_.reset();
  for (auto& [id, set] : sets_) pool_.destroy_backends(*set);
}

Status Engine::set_up() {
  const Status created = create_backends();
  if (created || world_.settings.size == 1) return created;
  return fail_to_join(created.error());
}

// The others learn why they wait in vain; and it may be that this rank did.
Error Engine::fail_to_join(const Error& error) {
  data_plane_failed(error);
  linger();
  return make_error(error.code, end_text_);
}

Status Engine::create_backends() {
  parameters_ = agreed_settings().parameters;
  oob_->define_scope(0, world_ranks());
  HORA_TRY(share_memory());
  HORA_TRY(start_watchdog());
  HORA_TRY(make_set(0, world_ranks()));
  for (const auto& ranks : world_.rank_infos.front().process_sets) {
    std::vector<std::int32_t> sorted = ranks;
    std::sort(sorted.begin(), sorted.end());
    if (coordinator_) coordinator_->add_set(sorted);
    HORA_TRY(make_set(static_cast<std::int32_t>(sets_.size()), std::move(sorted)));
  }
  start_tuning();
  log_backends();
  return Ok{};
}

Status Engine::start_watchdog() {
  const auto on_break = [this](const std::vector<int>& silent) { interrupt(silent); };
  std::optional<Watchdog::Watch> watch;
  if (signs_ && (stall_warning().count() > 0 || stall_limit().count() > 0)) {
    std::vector<std::string> cards;
    for (const RankInfo& each : world_.rank_infos) cards.push_back(each.heartbeat_card);
    HORA_TRY(signs_->bootstrap(cards, stall_limit().count() > 0));
    watch = {std::move(*signs_),
             stall_limit(),
             world_.settings.rank,
             &set_table_,
             stall_warning(),
             [this](const std::vector<Watchdog::Silence>& silent) { tell_of_silence(silent); }};
  }
  signs_.reset();
  auto watchdog = Watchdog::post(channel_->liveness_fds(), on_break, std::move(watch));
  if (!watchdog) return std::move(watchdog).error();
  watchdog_ = std::move(*watchdog);
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
  set->cache = ResponseCache(static_cast<std::size_t>(agreed_settings().cache_capacity));
  set->ranks = std::move(ranks);
  const auto mine = std::find(set->ranks.begin(), set->ranks.end(), world_.settings.rank);
  if (mine != set->ranks.end()) set->index = static_cast<int>(mine - set->ranks.begin());
  const auto host = [&](std::int32_t rank) { return world_.hosts[static_cast<std::size_t>(rank)]; };
  set->one_host = std::all_of(set->ranks.begin(), set->ranks.end(), [&](std::int32_t rank) {
    return host(rank) == host(set->ranks.front());
  });
  oob_->define_scope(id, set->ranks);
  HORA_TRY(pool_.create_backends(*set));
  set->keeps_order = std::all_of(set->backends.begin(), set->backends.end(),
                                 [](const auto& each) { return is_own_backend(each.first); });
  if (FastPath* fast_path = channel_->fast_path(); id == 0 && fast_path != nullptr) {
    fast_path_.rows = FastPathTable(*set, world_.hosts, fast_path->room());
  }
  set_table_.add(id, set->ranks);
  sets_[id] = std::move(set);
  const std::vector<std::string> enabled = pool_.enabled();
  const bool any_thread = std::all_of(enabled.begin(), enabled.end(), any_thread_may_call);
  waiters_.store(any_thread ? channel_->waiters() : nullptr, std::memory_order_release);
  return Ok{};
}

void Engine::wake() { channel_->wake(); }

void Engine::stop_now(std::string reason) {
  {
    const std::lock_guard<std::mutex> lock(stop_mutex_);
    if (!stop_reason_) stop_reason_ = std::move(reason);
  }
  stopping_.store(true, std::memory_order_release);
  pool_.abort_all();
  wake();
}

std::string Engine::name_rank(int rank) const {
  return "rank " + std::to_string(rank) + " (" +
         world_.rank_infos[static_cast<std::size_t>(rank)].hostname + ")";
}

bool Engine::step(Deadline deadline, bool take) {
  bool worked = take && take_submissions();
  if (poll_fast_path()) worked = true;
  call_if_late();
  if (coordinator_ && coordinate()) worked = true;
  if (!ended() && look_at_steps()) worked = true;
  if (ended()) return true;
  if (something_under_way()) {  // its end comes without a message
    deadline = kNoWait;
    worked = true;
  } else if (!worked && gathering_until_) {  // whoever drives has to be back by then
    deadline = *gathering_until_;
    worked = true;
  } else {
    deadline = worked ? kNoWait : std::min({deadline, next_stall_check(), fast_path_due()});
  }
  update_watchdog();
  wait_for_messages(deadline);
  // What the others had posted before they sent a message comes before it.
  if (poll_fast_path() || !inbox_.empty()) worked = true;
  // Whoever submitted this meanwhile has woken nobody but the poll above.
  if (take && queue_.something_waits()) worked = true;
  unfinished_ = !inbox_.empty();
  // One at a time: an operation that is begun by a message may fail, and then the reason may be
  // among the messages behind it.
  while (!ended() && !inbox_.empty()) handle(take_message());
  look_for_stalls();
  if (stall_limit().count() > 0 && !ended()) {
    if (const auto who = silent_ranks(); !who.empty()) end_for_silence("waiting", who);
  }
  if (const auto reason = stop_reason(); reason && !ended()) give_up(*reason);
  update_watchdog();
  return worked;
}

// The watchdog is to miss the others as long as this rank waits for them, wherever whoever drives
// sleeps.
void Engine::update_watchdog() {
  if (!watchdog_->watches()) return;
  const auto runs = std::find_if(under_way_.begin(), under_way_.end(),
                                 [](const auto& step) { return step != nullptr; });
  if (runs != under_way_.end()) {
    const UnderWay& step = **runs;
    if (!watchdog_->is_in_step(step.number)) {
      watchdog_->in_step(step.number, step.set->id, step.run.what());
    }
    return;
  }
  const auto waits = [](const auto& set) {
    return set.second->pending.size() > 0 || set.second->joining != nullptr;
  };
  if (fast_path_.operation != nullptr) return watchdog_->waits_in(0);
  const auto found = std::find_if(sets_.begin(), sets_.end(), waits);
  if (found == sets_.end()) return watchdog_->waits_in(Wait::kNowhere);
  if (found->second->pending.size() > 0) return watchdog_->waits_in(found->first);
  // Whoever has joined waits for all others, and nobody has submitted anything.
  const std::uint64_t number = UINT64_MAX - static_cast<std::uint64_t>(found->first);
  if (!watchdog_->is_in_step(number)) watchdog_->in_step(number, found->first, "join");
}

Deadline Engine::next_stall_check() const {
  return coordinator_ && coordinator_->anything_waiting() ? stalls_.next_check() : Deadline::max();
}

void Engine::look_for_stalls() {
  const Deadline due = next_stall_check();
  if (ended() || due == Deadline::max() || due > Clock::now()) return;
  const StallInspector::Report report = stalls_.check(*coordinator_, Clock::now());
  if (!report.warning.empty()) os::log_warn("stall", report.warning);
  if (report.fatal.empty()) return;
  // Of those that are missing some may only be held up by another one.
  std::vector<int> stopped = watchdog_->silent();
  std::erase_if(stopped, [&](int rank) {
    return std::count(report.missing.begin(), report.missing.end(), rank) == 0;
  });
  if (!stopped.empty()) return end_for_silence("waiting", stopped);
  os::log_error("stall", report.fatal);
  end_world(report.fatal);
}

std::optional<std::string> Engine::stop_reason() {
  if (!stopping_.load(std::memory_order_acquire)) return std::nullopt;
  const std::lock_guard<std::mutex> lock(stop_mutex_);
  return stop_reason_;
}

Incoming Engine::take_message() {
  Incoming first = std::move(inbox_.front());
  inbox_.pop_front();
  return first;
}

void Engine::wait_for_messages(Deadline deadline) {
  std::vector<Incoming> deferred = oob_->take_deferred();
  if (!deferred.empty()) deadline = kNoWait;
  for (Incoming& each : channel_->poll(deadline)) deferred.push_back(std::move(each));
  for (Incoming& each : deferred) {
    if (each.gone) ++gone_count_;
    inbox_.push_back(std::move(each));
  }
}

// What is ready is to share a step with what comes soon.
bool Engine::wait_for_more() {
  gathering_until_.reset();
  if (parameters_.cycle_time_us == 0) return false;
  gathering_until_ = coordinator_->wait_for_more(
      Clock::now(), std::chrono::microseconds(parameters_.cycle_time_us),
      parameters_.fusion_threshold_bytes);
  return gathering_until_.has_value();
}

// Answers whether there was something to do.
bool Engine::coordinate() {
  if (wait_for_more()) return false;
  std::vector<Coordinator::Ready> ready = coordinator_->take_ready();
  if (ready.empty()) return false;
  for (auto& [id, set] : sets_) set->cache.let_go();
  std::vector<AgreedOp> list;
  list.reserve(ready.size() + 1);
  for (Coordinator::Ready& each : ready) {
    list.push_back(agreed_op(each.known, std::move(each.made), each.number));
  }
  if (tuning_) add_change(list);
  announce(list);
  for (AgreedOp& each : list) take_own_column(each);
  carry_out(list);
  return true;
}

Engine::AgreedOp Engine::agreed_op(const Response* known, std::unique_ptr<Response> made,
                                   CacheId number) const {
  const Response* const response = known != nullptr ? known : made.get();
  const Request& agreed = response->agreed;
  const std::uint64_t hash = name_hash(agreed.process_set, agreed.name);
  const auto set = sets_.find(agreed.process_set);
  const Operation* const mine =
      set == sets_.end() ? nullptr : set->second->find_pending(hash, agreed.name);
  return {response, std::move(made), number, hash, mine};
}

void Engine::handle(Incoming incoming) {
  if (incoming.gone) return handle_failure_notice(incoming);
  if (oob_->handle(incoming)) return;
  const std::string_view payload = std::string_view(incoming.bytes).substr(1);
  switch (kind_of(incoming.bytes)) {
    case ControlMessage::kRequests:
      return handle_requests(incoming.rank, payload);
    case ControlMessage::kResponses:
      return handle_responses(payload);
    case ControlMessage::kInFull:
      return ask_in_full(payload);
    case ControlMessage::kPosted:
      return handle_posted(incoming.rank, payload);
    case ControlMessage::kCall:
      return handle_call(payload);
    case ControlMessage::kBroken:
    case ControlMessage::kFailed:
    case ControlMessage::kAbort:
      return handle_failure_notice(incoming);
    case ControlMessage::kFinished:
      if (coordinator_) finished_[static_cast<std::size_t>(incoming.rank)] = 1;
      return;
    default:
      return give_up(name_rank(incoming.rank) + " sent an unexpected control message");
  }
}

void Engine::carry_out(const std::vector<AgreedOp>& list) {
  std::vector<const Response*> responses;
  responses.reserve(list.size());
  for (const AgreedOp& each : list) responses.push_back(each.response);
  observer_.agreed(responses, Clock::now());
  const auto threshold_of = [this](std::int32_t id) {
    // What shares a step depends on when the operations came; where that could change the order in
    // which numbers are added, it must not happen.
    const auto set = sets_.find(id);
    const bool may_fuse =
        !agreed_settings().deterministic || (set != sets_.end() && set->second->keeps_order);
    return may_fuse ? parameters_.fusion_threshold_bytes : 0;
  };
  std::vector<const AgreedOp*> chosen;
  for (const auto& step : plan_fusion(responses, threshold_of)) {
    if (state_ != State::kRunning) return;
    chosen.clear();
    for (std::size_t index : step) chosen.push_back(&list[index]);
    run_step(chosen);
  }
}

OperationPtr Engine::take_pending(ProcessSet& set, const AgreedOp& each) {
  if (each.response->agreed.action == Action::kJoin) return std::exchange(set.joining, nullptr);
  return each.mine == nullptr ? nullptr : set.take_pending(*each.mine);
}

void Engine::run_step(const std::vector<const AgreedOp*>& step) {
  const Response& first = *step.front()->response;
  const bool alone = first.agreed.action == Action::kShutdown ||
                     first.agreed.action == Action::kAddProcessSet ||
                     first.agreed.action == Action::kRemoveProcessSet;
  if (alone && !wait_for_steps(1)) return;
  if (first.agreed.action == Action::kShutdown) return leave(first);
  const auto found = sets_.find(first.agreed.process_set);
  if (found == sets_.end() || found->second->index < 0) return;  // coordinated only
  ProcessSet& set = *found->second;
  if (first.status == HORA_OK) {
    switch (first.agreed.action) {
      case Action::kAddProcessSet:
        return add_set(first, take_pending(set, *step.front()));
      case Action::kRemoveProcessSet:
        return remove_set(first, take_pending(set, *step.front()));
      case Action::kTune:
        return change_parameters(first);
      case Action::kJoin:
        break;
      default:
        return run_collective(set, step);
    }
  }
  const OperationPtr operation = take_pending(set, *step.front());
  if (operation == nullptr) return;  // of a group that this rank sees otherwise
  if (!first.numbers.empty()) operation->number = first.numbers.front();
  finish(operation, first.status, first.error);
}

void Engine::add_set(const Response& response, const OperationPtr& operation) {
  const auto id = static_cast<std::int32_t>(response.numbers.at(0));
  const std::vector<std::int32_t> ranks(response.agreed.shape.begin(), response.agreed.shape.end());
  // Making it takes messages, which nobody but this waits for.
  if (FastPath* fast_path = channel_->fast_path()) fast_path->set_attentive(false);
  const Status made = make_set(id, ranks);
  if (FastPath* fast_path = channel_->fast_path()) fast_path->set_attentive(true);
  if (!made) data_plane_failed(made.error().with_context("adding a process set"));
  if (operation == nullptr) return;
  if (!made) return finish(operation, HORA_ABORTED, end_text_);
  operation->number = id;
  finish(operation, HORA_OK, {});
}

void Engine::remove_set(const Response& response, const OperationPtr& operation) {
  const auto id = static_cast<std::int32_t>(response.agreed.shape.at(0));
  const auto found = sets_.find(id);
  if (found != sets_.end()) {
    ProcessSet& set = *found->second;
    set_table_.remove(id);
    finish_all(set.pending.take_all(), HORA_ABORTED, "the process set was removed");
    if (set.joining) finish(set.joining, HORA_ABORTED, "the process set was removed");
    pool_.destroy_backends(set);
    oob_->forget_scope(id);
    sets_.erase(found);
  }
  if (operation != nullptr) finish(operation, HORA_OK, {});
}

void Engine::finish(const OperationPtr& operation, hora_status status, std::string_view text) {
  finish_all({&operation, 1}, status, text);
}

void Engine::finish_all(std::span<const OperationPtr> operations, hora_status status,
                        std::string_view text) {
  queue_.release_names(operations);
  for (const OperationPtr& operation : operations) {
    if (operation != nullptr) operation->finish(status, text);
  }
}

}  // namespace hora::collectives
