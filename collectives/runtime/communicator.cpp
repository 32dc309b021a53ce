// SPDX-License-Identifier: Apache-2.0
// One rank of a job, from join() to leave(). The order of joining is fixed: the flight recorder
// first, so that a rank that hangs can be seen; then the control connections, over which everything
// else is agreed; then backends; then the thread that drives the engine.
#include "collectives/runtime/communicator.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "collectives/control/heartbeat.h"
#include "collectives/control/tcp_channel.h"
#include "collectives/runtime/host_stage.h"
#include "collectives/runtime/meeting_point.h"
#include "collectives/runtime/rank_location.h"
#include "collectives/runtime/request_check.h"
#include "collectives/runtime/tracing.h"
#include "collectives/trace/flight_recorder.h"
#include "rendezvous/os/log.h"
#include "rendezvous/os/threads.h"

namespace hora::collectives {

namespace {

// The ranks normally leave together within seconds; after this time a rank leaves alone.
constexpr std::chrono::seconds kLeaveTimeout{15};

StallInspector stalls_of(const Settings& settings) {
  return StallInspector({settings.stall_check, settings.stall_warning, settings.stall_shutdown});
}

// Opened whatever this rank's own settings are, because those of rank 0 apply.
std::optional<Heartbeat> open_life_signs(const Communicator::Start& start) {
  if (start.settings.size == 1) return std::nullopt;
  auto signs = Heartbeat::open(start.address, start.settings.rank);
  if (signs) return *std::move(signs);
  // The job runs without heartbeats, too; only stopped ranks are then not detected.
  if (start.settings.stall_check) os::log_warn("stall", signs.error().message);
  return std::nullopt;
}

// Opened before the ranks meet, so that their cards need no exchange of their own.
Engine::Listeners open_listeners(const Communicator::Start& start,
                                 const std::vector<std::string>& backends) {
  const Settings& settings = start.settings;
  if (settings.size == settings.local_size && !settings.places_by_machine) return {};
  const bool may_lead = settings.local_rank == 0 || settings.places_by_machine;
  return {LocalListener::open(), OwnSockets::open(start.address, may_lead),
          ListeningLinks::open(settings, start.address, backends)};
}

RankInfo own_rank_info(const Communicator::Start& start) {
  RankInfo rank_info;
  rank_info.hostname = start.settings.hostname;
  rank_info.machine = start.machine.empty() ? machine_identity() : start.machine;
  rank_info.local_rank = start.settings.local_rank;
  rank_info.local_size = start.settings.local_size;
  rank_info.backends = usable_backends(start.settings);
  rank_info.process_sets = start.process_sets;
  rank_info.parameters = start.settings.parameters;
  rank_info.cache_capacity = start.settings.cache_capacity;
  rank_info.deterministic = start.settings.deterministic;
  rank_info.group_fusion = start.settings.group_fusion;
  rank_info.stall_warning_s = stalls_of(start.settings).warning().count();
  rank_info.stall_limit_s = stalls_of(start.settings).limit().count();
  rank_info.hierarchical_allreduce = start.settings.hierarchical_allreduce;
  rank_info.hierarchical_allgather = start.settings.hierarchical_allgather;
  return rank_info;
}

// The caller has memory for the result; that of the others belongs to a handle.
bool is_preparable(std::int32_t operation) {
  return operation == HORA_ALLREDUCE || operation == HORA_BROADCAST;
}

bool is_of_world(const hora_request& request) {
  return request.process_set == HORA_GLOBAL_PROCESS_SET;
}

// The n-th barrier of a set on one rank belongs to the n-th on every other: the count is the name.
// The fast path uses the count itself.
void name_barrier(Operation& operation, std::uint64_t count) {
  operation.request.name = "hora.barrier." + std::to_string(count - 1);
  operation.name_hash = name_hash(operation.request.process_set, operation.request.name);
  operation.known.number = count;
}

// Tensors on a device that is not there would end the world in the middle of their operation. A
// struct of zeros names device 0.
Result<OperationPtr> with_device(Result<OperationPtr> checked) {
  if (!checked || (*checked)->request.device == HORA_CPU_DEVICE) return checked;
  const Request& request = (*checked)->request;
  if (const Status there = check_device(request.device); !there) {
    return there.error().with_context(std::string(action_name(request.action)) + " '" +
                                      request.name + "'");
  }
  return checked;
}

Outcome from_error(const Error& error) {
  // check_request() fails only for a wrong argument; everything else that can go wrong has a status
  // of its own.
  return {error.code == ErrorCode::kTimedOut ? HORA_TIMED_OUT : HORA_INVALID_ARGUMENT,
          error.message};
}

}  // namespace

Result<std::unique_ptr<Communicator>> Communicator::join(Start start) {
  HORA_TRY(check_backend_names(start.settings));
  std::unique_ptr<Communicator> self(new Communicator);
  // Before anything that can hang: a hang report then shows which ranks have not connected.
  const Settings& settings = start.settings;
  if (!settings.no_nvtx_ranges) self->recorder_.open_ranges();
  const int slot = settings.recorder_slot < 0 ? settings.local_rank : settings.recorder_slot;
  self->recorder_.flight().open(settings.flight_recorder, slot,
                                settings.worker < 0 ? settings.rank : settings.worker);
  offer_stacks(settings.flight_recorder, slot);
  self->recorder_.watch_gpus(settings.local_rank);
  std::optional<Heartbeat> signs = open_life_signs(start);
  RankInfo rank_info = own_rank_info(start);
  // The address of the heartbeat socket travels with the rank info, so it needs no exchange of its
  // own.
  if (signs) rank_info.heartbeat_card = signs->card();
  Engine::Listeners listeners = open_listeners(start, rank_info.backends);
  rank_info.host_card = listeners.on_host.card;
  rank_info.hosts_card = listeners.between_hosts.card;
  rank_info.links_card = listeners.links.card;
  auto control = meet(start, encode_rank_info(rank_info));
  if (!control) return std::move(control).error();
  self->world_ = std::make_unique<World>();
  World& world = *self->world_;
  world.settings = std::move(start.settings);
  world.address = std::move(start.address);
  for (const std::string& bytes : control->rank_infos) {
    auto each = decode_rank_info(bytes);
    if (!each) return std::move(each).error();
    world.rank_infos.push_back(std::move(*each));
  }
  if (world.settings.places_by_machine) find_place_on_machine(world.rank_infos, world.settings);
  world.hosts = number_hosts(world.rank_infos);
  // Every rank checks the same list, so all of them fail here, or none.
  if (std::string problem = check_process_sets(world.rank_infos); !problem.empty()) {
    return make_error(ErrorCode::kUsage, std::move(problem));
  }
  self->engine_ = std::make_unique<Engine>(world, std::move(control->channel), self->recorder_,
                                           std::move(signs));
  HORA_TRY(self->engine_->set_up(std::move(listeners)));
  // From here on the other ranks count on this one: a failure has to end the world for all.
  self->start_records();
  self->recorder_.flight().joined(self->own_process_sets());
  self->driver_ = std::make_unique<Driver>(*self->engine_);
  auto thread = os::start_service_thread(
      "hora-runtime", [communicator = self.get()] { communicator->driver_->run(); });
  if (!thread) return self->engine_->fail_to_join(thread.error());
  self->thread_ = std::move(*thread);
  pin_to_core(self->thread_, world.settings);
  return self;
}

void Communicator::start_records() {
  const Settings& settings = world_->settings;
  clock_ = compare_clocks(engine_->oob(), *world_);
  if (settings.timeline.empty() || settings.timeline == "DYNAMIC") return;
  const Outcome started = start_timeline(settings.timeline, settings.timeline_mark_cycles);
  if (started.status != HORA_OK) {
    // A timeline is a record, not the job: without it the job continues, and the launcher reports
    // the loss in the exit code.
    os::log_error("timeline", started.text + "; the job continues without it");
    recorder_.flight().lost_record("its timeline: it could not be started");
  }
}

Outcome Communicator::start_timeline(const std::string& path, bool mark_cycles) {
  // Nothing: another rank writes this file.
  const auto own = own_timeline_path(path, world_->settings.rank);
  if (!own) return {};
  const Status started =
      recorder_.start_timeline(timeline_options(*world_, clock_, *own, mark_cycles));
  return started ? Outcome{} : Outcome{HORA_INVALID_ARGUMENT, started.error().message};
}

Communicator::~Communicator() { leave(); }

void Communicator::leave() {
  // Never joined, or already left.
  if (!thread_.joinable()) return;
  const OperationPtr request = make_operation();
  request->request.action = Action::kShutdown;
  request->request.name = "hora.shutdown";
  recorder_.flight().asks_to_leave();
  // Refused if the world has already ended; then the thread is ending, too. Otherwise the request
  // completes when this rank begins to leave or the world breaks, and the thread ends by itself.
  const bool asked = enqueue({&request, 1}, Then::kGoesOn).status == HORA_OK;
  if (asked && !request->wait(Clock::now() + kLeaveTimeout)) {
    engine_->stop_now("rank " + std::to_string(world_->settings.rank) + " has shut down");
  }
  thread_.join();
  recorder_.stop_timeline();
}

bool Communicator::is_homogeneous() const {
  std::map<std::int32_t, int> counts;
  for (std::int32_t host : world_->hosts) ++counts[host];
  return std::all_of(counts.begin(), counts.end(),
                     [&](const auto& each) { return each.second == counts.begin()->second; });
}

void Communicator::name_unnamed(Operation& operation, std::uint64_t barrier) {
  if (operation.request.action == Action::kJoin) {
    // At most one join of a rank is in flight per process set, so all share a name.
    operation.request.name = "hora.join";
  } else if (operation.request.action == Action::kBarrier) {
    name_barrier(operation, barrier != 0 ? barrier : ++barriers_[operation.request.process_set]);
  }
}

Outcome Communicator::submit(std::span<const hora_request> requests, hora_handle* handles,
                             Then then) {
  if (requests.empty() || handles == nullptr) {
    return {HORA_INVALID_ARGUMENT, "hora_submit needs at least one request and room for handles"};
  }
  if (submit_again(requests, handles, then)) return {};
  if (requests.size() == 1) return submit_one(requests.front(), 0, handles, then);
  std::vector<OperationPtr> operations;
  operations.reserve(requests.size());
  for (const hora_request& request : requests) {
    auto operation = operation_for(request);
    if (!operation) return from_error(operation.error());
    operations.push_back(std::move(*operation));
  }
  const Request& first = operations.front()->request;
  for (const OperationPtr& operation : operations) {
    if (operation->request.process_set != first.process_set || operation->request.name.empty()) {
      return {HORA_INVALID_ARGUMENT,
              "the operations of a group must belong to one process set, and be neither barrier "
              "nor join"};
    }
    // The name of the first member identifies the group: names in flight are unique within a set.
    operation->request.group = first.name;
    operation->request.group_size = static_cast<std::int32_t>(operations.size());
  }
  return hand_over(operations, handles, then);
}

Outcome Communicator::submit_one(const hora_request& request, std::uint64_t barrier,
                                 hora_handle* handle, Then then) {
  const auto operation = operation_for(request);
  if (!operation) return from_error(operation.error());
  return hand_over({&*operation, 1}, handle, then, barrier);
}

// As the last time, in everything but the memory. False: as if it had not been tried.
bool Communicator::submit_again(std::span<const hora_request> requests, hora_handle* handles,
                                Then then) {
  const auto hand_out = [&](std::span<const OperationPtr> operations) {
    const std::lock_guard<std::mutex> lock(handles_mutex_);
    for (const OperationPtr& operation : operations) {
      *handles++ = operation->handle = handles_.add(operation);
    }
  };
  const RequestQueue::Push how =
      engine_->queue().push_again(requests, recorder_.wants_all(), hand_out);
  return how != RequestQueue::Push::kNotAgain && outcome_of(how, {}, then).status == HORA_OK;
}

Result<OperationPtr> Communicator::operation_for(const hora_request& request) const {
  const SetTable& sets = engine_->sets();
  const std::int32_t rank = world_->settings.rank;
  // The common case needs no look into the table of sets, which takes a lock.
  if (request.process_set == HORA_GLOBAL_PROCESS_SET) {
    return with_device(check_request(request, sets.world(), rank));
  }
  const auto ranks = sets.ranks(request.process_set);
  if (ranks == nullptr) {
    return make_error(ErrorCode::kUsage,
                      "there is no process set " + std::to_string(request.process_set));
  }
  if (std::find(ranks->begin(), ranks->end(), rank) == ranks->end()) {
    return make_error(ErrorCode::kUsage, "rank " + std::to_string(rank) +
                                             " is not in process set " +
                                             std::to_string(request.process_set));
  }
  return with_device(check_request(request, *ranks, rank));
}

Outcome Communicator::hand_over(std::span<const OperationPtr> operations, hora_handle* handles,
                                Then then, std::uint64_t barrier) {
  {
    const std::lock_guard<std::mutex> lock(handles_mutex_);
    for (const OperationPtr& operation : operations) {
      // Under the lock, so that two threads never give two barriers the same count. The handle
      // exists before the operation is queued, since it may be done before enqueue() returns.
      name_unnamed(*operation, barrier);
      operation->handle = handles_.add(operation);
    }
  }
  Outcome outcome = enqueue(operations, then);
  for (std::size_t i = 0; i < operations.size(); ++i) {
    handles[i] = outcome.status == HORA_OK ? operations[i]->handle : 0;
    if (outcome.status != HORA_OK) release(operations[i]->handle);
  }
  return outcome;
}

Outcome Communicator::enqueue(std::span<const OperationPtr> operations, Then then) {
  const auto now = Clock::now();
  for (const OperationPtr& operation : operations) {
    operation->submitted = now;
    // Computed on the caller's thread, and used by every table from here on.
    operation->name_hash = name_hash(operation->request.process_set, operation->request.name);
  }
  return push(operations, then);
}

Outcome Communicator::push(std::span<const OperationPtr> operations, Then then) {
  std::string detail;
  const RequestQueue::Push how = engine_->queue().push(operations, detail);
  return outcome_of(how, detail, then);
}

// Of the pushed requests; notifies the driver.
Outcome Communicator::outcome_of(RequestQueue::Push how, const std::string& detail, Then then) {
  switch (how) {
    case RequestQueue::Push::kQueuedAlone:
      driver_->submitted(true, true, then);
      return {};
    case RequestQueue::Push::kQueuedFirst:
      driver_->submitted(true, false, then);
      return {};
    case RequestQueue::Push::kQueued:
      driver_->submitted(false, false, then);
      return {};
    case RequestQueue::Push::kDuplicate:
      return {HORA_INVALID_ARGUMENT,
              "an operation named '" + detail +
                  "' is already in flight; wait for it, or use another name"};
    case RequestQueue::Push::kClosed:
      return {HORA_ABORTED, detail};
    case RequestQueue::Push::kNotAgain:
      break;
  }
  return {HORA_INTERNAL, "unreachable"};
}

Outcome Communicator::run(const hora_request& request, Deadline deadline, hora_handle* handle) {
  const bool has_result = !is_preparable(request.operation) && request.operation != HORA_BARRIER;
  if (handle == nullptr && (has_result || deadline != Deadline::max())) {
    return {HORA_INVALID_ARGUMENT, "hora_run needs room for a handle here"};
  }
  hora_handle own = 0;
  if (handle != nullptr) *handle = 0;
  // Whichever way it goes, it is the n-th barrier of the world.
  const bool counts = request.operation == HORA_BARRIER && is_of_world(request);
  const std::uint64_t barrier = counts ? count_barrier() : 0;
  OperationPtr operation;
  const auto repeated = [&] {
    const OperationPtr* const found = engine_->repeated_calls().find(request);
    if (found != nullptr && counts) name_barrier(**found, barrier);
    // Before the next caller finds it: its result is this one's.
    if (found != nullptr && has_result) operation = *found;
    return found;
  };
  if (driver_->run_at_once(repeated, deadline, operation) == AtOnce::kNotBegun) {
    const Outcome outcome = counts ? submit_one(request, barrier, &own, Then::kWaits)
                                   : submit({&request, 1}, &own, Then::kWaits);
    if (outcome.status != HORA_OK) return outcome;
    operation = find(own);
    driver_->wait_for(*operation, deadline, Then::kWaits);
    if (operation->done()) keep(request, *operation);
  } else if (operation == nullptr) {
    return {};
  } else if (has_result && operation->done() && operation->status == HORA_OK) {
    const std::lock_guard<std::mutex> lock(handles_mutex_);
    own = handles_.add(operation);
  }
  if (!operation->done()) {
    // A kept operation becomes the handle's: RepeatedCalls leaves it alone from now on.
    const std::lock_guard<std::mutex> lock(handles_mutex_);
    *handle = own != 0 ? own : handles_.add(operation);
    return {HORA_TIMED_OUT, operation->request.name};
  }
  Outcome outcome{operation->status, operation->error};
  if (outcome.status == HORA_OK && has_result) {
    *handle = own;
  } else if (own != 0) {
    release(own);
  }
  return outcome;
}

// A call that has come before, with the same name and shape, is likely to come again.
void Communicator::keep(const hora_request& request, const Operation& ran) {
  const bool barrier = request.operation == HORA_BARRIER;
  if ((ran.asked_as == 0 && !barrier) || ran.status != HORA_OK || !is_of_world(request) ||
      ran.request.device != HORA_CPU_DEVICE) {
    return;
  }
  driver_->if_free([&] {
    // Another thread may have kept it meanwhile; or it was, and something stood in its way.
    if (engine_->repeated_calls().find(request) != nullptr) return;
    auto made = operation_for(request);
    if (!made) return;
    if (barrier) name_barrier(**made, 1);
    (*made)->name_hash = name_hash((*made)->request.process_set, (*made)->request.name);
    engine_->repeated_calls().keep(request, std::move(*made), engine_->queue());
  });
}

bool Communicator::wait(Operation& operation, Deadline deadline) {
  return driver_->wait_for(operation, deadline, Then::kGoesOn);
}

Outcome Communicator::prepare(std::span<const hora_request> requests, Plan& plan) {
  std::vector<OperationPtr> operations;
  std::set<std::pair<std::int32_t, std::string_view>> names;
  for (const hora_request& request : requests) {
    if (!is_preparable(request.operation)) {
      return {HORA_INVALID_ARGUMENT, "only allreduce and broadcast can be prepared"};
    }
    auto operation = operation_for(request);
    if (!operation) return from_error(operation.error());
    const Request& made = (*operation)->request;
    operations.push_back(std::move(*operation));
    if (!names.emplace(made.process_set, made.name).second) {
      return {HORA_INVALID_ARGUMENT, "'" + made.name + "' is more than once in the plan"};
    }
  }
  // By rank 0's settings, so that all ranks make the same sets. What shares a step adds in another
  // order with some backends, which deterministic mode excludes.
  const RankInfo& agreed = world_->agreed();
  const std::int64_t threshold =
      agreed.deterministic ? 0 : agreed.parameters.fusion_threshold_bytes;
  plan.operations = join_reductions(std::move(operations), threshold);
  for (const OperationPtr& operation : plan.operations) {
    operation->name_hash = name_hash(operation->request.process_set, operation->request.name);
  }
  engine_->queue().prepare(plan.operations);
  return {};
}

Outcome Communicator::start(Plan& plan, Then then) {
  if (plan.started && !plan.done()) {
    return {HORA_INVALID_ARGUMENT, "the plan is in flight: wait for it before it is started again"};
  }
  const auto now = Clock::now();
  for (const OperationPtr& operation : plan.operations) operation->start_again(now);
  Outcome outcome = push(plan.operations, then);
  plan.started = outcome.status == HORA_OK;
  return outcome;
}

Outcome Communicator::run(Plan& plan, Deadline deadline, bool& done) {
  done = true;
  if (plan.operations.size() == 1 && !(plan.started && !plan.done())) {
    OperationPtr operation;
    const auto only = [&] { return &plan.operations.front(); };
    const AtOnce outcome = driver_->run_at_once(only, deadline, operation);
    if (outcome != AtOnce::kNotBegun) {
      plan.started = true;
      done = outcome == AtOnce::kDone;
      return {};
    }
  }
  if (Outcome outcome = start(plan, Then::kWaits); outcome.status != HORA_OK) return outcome;
  done = wait(plan, deadline, Then::kWaits);
  return {};
}

bool Communicator::wait(Plan& plan, Deadline deadline, Then then) {
  for (const OperationPtr& operation : plan.operations) {
    if (!operation->done() && !driver_->wait_for(*operation, deadline, then)) return false;
  }
  return true;
}

void Communicator::let_go(Plan& plan) {
  engine_->queue().let_go(plan.operations);
  plan.operations.clear();
}

OperationPtr Communicator::find(hora_handle handle) const {
  const std::lock_guard<std::mutex> lock(handles_mutex_);
  return handles_.find(handle);
}

bool Communicator::succeeded(hora_handle handle) const {
  const std::lock_guard<std::mutex> lock(handles_mutex_);
  const OperationPtr* const operation = handles_.look_at(handle);
  return operation != nullptr && (*operation)->done() && (*operation)->status == HORA_OK;
}

void Communicator::release(hora_handle handle) {
  OperationPtr released;  // destroyed outside the lock
  const std::lock_guard<std::mutex> lock(handles_mutex_);
  released = handles_.take(handle);
}

Outcome Communicator::run_world_action(Action action, std::vector<std::int64_t> numbers,
                                       OperationPtr* done) {
  const OperationPtr operation = make_operation();
  operation->request.action = action;
  operation->request.shape = std::move(numbers);
  {
    const std::lock_guard<std::mutex> lock(handles_mutex_);
    // Every rank of the world calls these in the same order, so equal counts belong together.
    operation->request.name = action == Action::kProcessSetOf
                                  ? "hora.rank." + std::to_string(world_->settings.rank) + "." +
                                        std::to_string(own_actions_++)
                                  : "hora.world." + std::to_string(world_actions_++);
  }
  if (Outcome outcome = enqueue({&operation, 1}, Then::kWaits); outcome.status != HORA_OK) {
    return outcome;
  }
  // No deadline: the end of the world finishes the operation as well.
  driver_->wait_for(*operation, Deadline::max(), Then::kWaits);
  *done = operation;
  return {operation->status, operation->error};
}

Outcome Communicator::add_process_set(std::vector<std::int32_t> ranks, std::int32_t* id) {
  return make_process_set(Action::kAddProcessSet, std::move(ranks), id);
}

Outcome Communicator::process_set_of(std::vector<std::int32_t> ranks, std::int32_t* id) {
  return make_process_set(Action::kProcessSetOf, std::move(ranks), id);
}

Outcome Communicator::make_process_set(Action action, std::vector<std::int32_t> ranks,
                                       std::int32_t* id) {
  // The order in which a caller lists the ranks has no meaning; sorted, all ranks compare equal.
  std::sort(ranks.begin(), ranks.end());
  const std::vector<std::int64_t> numbers(ranks.begin(), ranks.end());
  if (ranks.empty() || ranks.front() < 0 || ranks.back() >= world_->settings.size ||
      std::adjacent_find(ranks.begin(), ranks.end()) != ranks.end()) {
    return {HORA_INVALID_ARGUMENT, "a process set needs distinct ranks from 0.." +
                                       std::to_string(world_->settings.size - 1) + ", not " +
                                       format_shape(numbers)};
  }
  if (action == Action::kProcessSetOf) {
    for (const std::int32_t each : engine_->sets().ids()) {
      const auto found = engine_->sets().ranks(each);
      if (found == nullptr || *found != ranks) continue;
      *id = each;
      return {};
    }
  }
  OperationPtr done;
  Outcome outcome = run_world_action(action, numbers, &done);
  recorder_.flight().changed_sets(own_process_sets());
  if (outcome.status == HORA_OK) *id = static_cast<std::int32_t>(done->number);
  return outcome;
}

Outcome Communicator::remove_process_set(std::int32_t id) {
  if (id == HORA_GLOBAL_PROCESS_SET || !engine_->sets().ranks(id)) {
    return {HORA_INVALID_ARGUMENT, "process set " + std::to_string(id) + " cannot be removed: " +
                                       (id == 0 ? "it is the whole job" : "it does not exist")};
  }
  OperationPtr done;
  Outcome outcome = run_world_action(Action::kRemoveProcessSet, {id}, &done);
  recorder_.flight().changed_sets(own_process_sets());
  return outcome;
}

std::uint64_t Communicator::own_process_sets() const {
  std::uint64_t sets = 0;
  for (const std::int32_t id : engine_->sets().ids()) {
    const auto ranks = engine_->sets().ranks(id);
    const bool member =
        ranks && std::find(ranks->begin(), ranks->end(), world_->settings.rank) != ranks->end();
    // The flight record has one word for this: sets beyond the 64th are not shown in a hang report.
    if (member && id < 64) sets |= UINT64_C(1) << id;
  }
  return sets;
}

}  // namespace hora::collectives
