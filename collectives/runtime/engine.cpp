#include "collectives/runtime/engine.h"

#include <algorithm>

#include "collectives/control/messages.h"
#include "collectives/control/ring_channel.h"
#include "collectives/fusion/fusion_plan.h"
#include "collectives/memory/futex.h"
#include "collectives/runtime/executor.h"
#include "rendezvous/os/log.h"

namespace hora::collectives {

namespace {

std::vector<std::int32_t> all_ranks(int size) {
  std::vector<std::int32_t> ranks;
  for (int rank = 0; rank < size; ++rank) ranks.push_back(rank);
  return ranks;
}

// They also add the numbers of each element in the order of the ranks, whatever else is in the
// step.
bool is_own_backend(const std::string& id) { return id == "self" || id == "shm"; }

}  // namespace

Engine::Engine(const World& world, std::unique_ptr<ControlChannel> channel, Observer& observer)
    : world_(world),
      observer_(observer),
      channel_(std::move(channel)),
      exchanger_(std::in_place, *channel_, world.settings.rank),
      pool_(world, &*exchanger_),
      stalls_({world.settings.stall_check, world.settings.stall_warning,
               world.settings.stall_shutdown}) {
  if (coordinates()) {
    coordinator_.emplace(world.settings.size);
    finished_.assign(static_cast<std::size_t>(world.settings.size), 0);
    finished_[0] = 1;
    if (const std::string text = stalls_.complaint(); !text.empty()) os::log_warn("stall", text);
  }
}

Engine::~Engine() {
  guard_.reset();
  for (auto& [id, set] : sets_) pool_.strip(*set);
}

Status Engine::set_up() {
  const Status equipped = equip();
  if (equipped || world_.settings.size == 1) return equipped;
  // The others learn why they wait in vain; and it may be that this rank did.
  data_plane_failed(equipped.error().message);
  linger();
  return make_error(equipped.error().code, end_text_);
}

Status Engine::equip() {
  exchanger_->define_scope(0, all_ranks(world_.settings.size));
  HORA_TRY(share_memory());
  guard_.emplace(channel_->liveness_fds(), [this] {
    pool_.abort_all();
    wake();
  });
  HORA_TRY(make_set(0, all_ranks(world_.settings.size)));
  for (const auto& ranks : world_.introductions.front().process_sets) {
    std::vector<std::int32_t> sorted = ranks;
    std::sort(sorted.begin(), sorted.end());
    if (coordinator_) coordinator_->add_set(sorted);
    HORA_TRY(make_set(static_cast<std::int32_t>(sets_.size()), std::move(sorted)));
  }
  return Ok{};
}

// Where all ranks are on one host, messages go through memory that they share. Where that cannot be
// had, they keep to their connections.
Status Engine::share_memory() {
  const Settings& settings = world_.settings;
  const auto& hosts = world_.hosts;
  if (std::any_of(hosts.begin(), hosts.end(), [&](auto host) { return host != hosts.front(); })) {
    return Ok{};
  }
  const std::vector<std::int32_t> all = all_ranks(settings.size);
  const std::size_t bytes = RingLayout{settings.size}.bytes();
  const auto meet = [&](const std::string& mine) {
    return exchanger_->exchange(0, all, {mine}, Clock::now() + settings.start_timeout);
  };
  auto segment = settings.size == 1 ? Segment::open_private(bytes)
                                    : Segment::open(all, settings.rank, bytes, meet);
  if (!segment) {
    if (segment.error().code == ErrorCode::kUnavailable) return Ok{};
    return std::move(segment).error();
  }
  channel_ = std::make_unique<RingChannel>(std::move(channel_), std::move(*segment), settings.rank,
                                           settings.size, cores_for(settings.size));
  exchanger_->use(*channel_);
  return Ok{};
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
  exchanger_->define_scope(id, set->ranks);
  HORA_TRY(pool_.equip(*set));
  set->keeps_order = std::all_of(set->backends.begin(), set->backends.end(),
                                 [](const auto& each) { return is_own_backend(each.first); });
  set_table_.add(id, set->ranks);
  sets_[id] = std::move(set);
  // A vendor's library may mind which thread calls it; our own backends do not.
  const std::vector<std::string> enabled = pool_.enabled();
  const bool any_thread = std::all_of(enabled.begin(), enabled.end(), is_own_backend);
  seats_.store(any_thread ? channel_->seats() : nullptr, std::memory_order_release);
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
         world_.introductions[static_cast<std::size_t>(rank)].hostname + ")";
}

bool Engine::step(Deadline deadline) {
  bool worked = take_submissions();
  if (coordinator_ && coordinate()) worked = true;
  if (ended()) return true;
  wait_for_messages(worked ? kNoWait : std::min(deadline, next_stall_check()));
  if (!inbox_.empty()) worked = true;
  // One at a time: an operation that is begun by a message may fail, and then the reason may be
  // among the messages behind it.
  while (!ended() && !inbox_.empty()) handle(take_message());
  look_for_stalls();
  if (const auto reason = stop_reason(); reason && !ended()) give_up(*reason);
  return worked;
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
  std::vector<Incoming> deferred = exchanger_->take_deferred();
  if (!deferred.empty()) deadline = kNoWait;
  for (Incoming& each : channel_->poll(deadline)) deferred.push_back(std::move(each));
  for (Incoming& each : deferred) {
    if (each.gone) ++gone_count_;
    inbox_.push_back(std::move(each));
  }
}

// Answers whether there was something to do.
bool Engine::coordinate() {
  std::vector<Verdict> verdicts = coordinator_->take_ready();
  if (verdicts.empty()) return false;
  announce(verdicts);
  for (Verdict& verdict : verdicts) take_own_column(verdict);
  carry_out(verdicts);
  return true;
}

void Engine::handle(Incoming incoming) {
  if (incoming.gone) return handle_bad_news(incoming);
  if (exchanger_->handle(incoming)) return;
  const std::string_view payload = std::string_view(incoming.bytes).substr(1);
  switch (kind_of(incoming.bytes)) {
    case ControlMessage::kRequests:
      return handle_requests(incoming.rank, payload);
    case ControlMessage::kVerdicts:
      return handle_verdicts(payload);
    case ControlMessage::kInFull:
      return ask_in_full(payload);
    case ControlMessage::kBroken:
    case ControlMessage::kAbort:
      return handle_bad_news(incoming);
    case ControlMessage::kFinished:
      if (coordinator_) finished_[static_cast<std::size_t>(incoming.rank)] = 1;
      return;
    default:
      return give_up(name_rank(incoming.rank) + " sent an unexpected control message");
  }
}

void Engine::carry_out(const std::vector<Verdict>& verdicts) {
  observer_.agreed(verdicts);
  const auto threshold_of = [this](std::int32_t id) {
    const Introduction& agreed = agreed_settings();
    // What shares a step depends on when the operations came; where that could change the order in
    // which numbers are added, it must not happen.
    const auto set = sets_.find(id);
    const bool may_fuse = !agreed.deterministic || (set != sets_.end() && set->second->keeps_order);
    return may_fuse ? agreed.fusion_threshold_bytes : 0;
  };
  for (const auto& step : plan_fusion(verdicts, threshold_of)) {
    if (state_ != State::kRunning) return;
    std::vector<const Verdict*> chosen;
    for (std::size_t index : step) chosen.push_back(&verdicts[index]);
    run_step(chosen);
  }
}

OperationPtr Engine::take_pending(ProcessSet& set, const Verdict& verdict) {
  if (verdict.agreed.action == Action::kJoin) return std::exchange(set.joining, nullptr);
  auto node = set.pending.extract(verdict.agreed.name);
  return node.empty() ? nullptr : std::move(node.mapped());
}

void Engine::run_step(const std::vector<const Verdict*>& verdicts) {
  const Verdict& first = *verdicts.front();
  if (first.agreed.action == Action::kShutdown) return leave(first);
  const auto found = sets_.find(first.agreed.process_set);
  if (found == sets_.end() || found->second->index < 0) return;  // coordinated only
  ProcessSet& set = *found->second;
  if (first.status == HORA_OK) {
    switch (first.agreed.action) {
      case Action::kAddProcessSet:
        return add_set(first, take_pending(set, first));
      case Action::kRemoveProcessSet:
        return remove_set(first, take_pending(set, first));
      case Action::kJoin:
        break;
      default:
        return run_collective(set, verdicts);
    }
  }
  const OperationPtr operation = take_pending(set, first);
  if (operation == nullptr) return;  // of a group that this rank sees otherwise
  if (!first.numbers.empty()) operation->number = first.numbers.front();
  finish(operation, first.status, first.error);
}

void Engine::run_collective(ProcessSet& set, const std::vector<const Verdict*>& verdicts) {
  std::vector<OperationPtr> owned;
  std::vector<Operation*> operations;
  for (const Verdict* verdict : verdicts) {
    owned.push_back(take_pending(set, *verdict));
    operations.push_back(owned.back().get());
    const bool joined = std::count(verdict->joined.begin(), verdict->joined.end(), set.index) > 0;
    if (operations.back() == nullptr && !joined) {
      return give_up("it never asked for '" + verdict->agreed.name + "', which it is told to run");
    }
  }
  observer_.step_begins(verdicts);
  Execution outcome = execute(set, verdicts, operations, observer_.activities());
  observer_.step_ends(verdicts, outcome.kind == Execution::Kind::kDone);
  if (outcome.kind == Execution::Kind::kBroken) {
    for (OperationPtr& operation : owned) {
      if (operation != nullptr) set.pending[operation->request.name] = std::move(operation);
    }
    return data_plane_failed(std::move(outcome.text));
  }
  const bool good = outcome.kind == Execution::Kind::kDone;
  for (const OperationPtr& operation : owned) {
    if (operation != nullptr) finish(operation, good ? HORA_OK : HORA_UNSUPPORTED, outcome.text);
  }
}

void Engine::add_set(const Verdict& verdict, const OperationPtr& operation) {
  const auto id = static_cast<std::int32_t>(verdict.numbers.at(0));
  const std::vector<std::int32_t> ranks(verdict.agreed.shape.begin(), verdict.agreed.shape.end());
  const Status made = make_set(id, ranks);
  if (!made) return data_plane_failed("adding a process set: " + made.error().message);
  if (operation == nullptr) return;
  operation->number = id;
  finish(operation, HORA_OK, {});
}

void Engine::remove_set(const Verdict& verdict, const OperationPtr& operation) {
  const auto id = static_cast<std::int32_t>(verdict.agreed.shape.at(0));
  const auto found = sets_.find(id);
  if (found != sets_.end()) {
    ProcessSet& set = *found->second;
    set_table_.remove(id);
    for (auto& [name, pending] : std::exchange(set.pending, {})) {
      finish(pending, HORA_ABORTED, "the process set was removed");
    }
    if (set.joining) finish(set.joining, HORA_ABORTED, "the process set was removed");
    pool_.strip(set);
    exchanger_->forget_scope(id);
    sets_.erase(found);
  }
  if (operation != nullptr) finish(operation, HORA_OK, {});
}

void Engine::finish(const OperationPtr& operation, hora_status status, std::string text) {
  queue_.release_name(*operation);
  operation->finish(status, std::move(text));
}

}  // namespace hora::collectives
