// SPDX-License-Identifier: Apache-2.0
// The elastic state decides; this carries it out: agents are connected, epochs prepared and begun,
// workers notified, while the job runs. Its events queue up while one is carried out, since actions
// cause further events.
#include "launcher/runs/elastic_run.h"

#include <algorithm>
#include <random>
#include <utility>

#include "launcher/elastic/elastic_state.h"
#include "launcher/elastic/host_registry.h"
#include "launcher/engines/registry.h"
#include "launcher/failures/failure_code.h"
#include "launcher/fleet/local_hosts.h"
#include "launcher/machine/host_facts.h"
#include "launcher/network/host_addresses.h"
#include "rendezvous/contract/elastic_place.h"
#include "rendezvous/contract/store_keys.h"

namespace hora::launcher {

namespace {

// The options of the command line that the state needs.
elastic::ElasticOptions elastic_options(const JobSpec& spec) {
  elastic::ElasticOptions options;
  options.np = spec.num_proc;
  options.min_np = spec.elastic->min_np;
  options.max_np = spec.elastic->max_np;
  options.reset_limit = spec.elastic->reset_limit;
  if (const auto& range = spec.elastic->cooldown_seconds) {
    options.cooldown = elastic::CooldownRange{std::chrono::seconds(range->first),
                                              std::chrono::seconds(range->second)};
  }
  options.elastic_timeout = spec.elastic->timeout;
  options.start_timeout = spec.start_timeout;
  // A worker that has to leave may first end the step that it is in.
  options.leave = spec.grace + Milliseconds(15'000);
  options.hosts_are_fixed = spec.elastic->discovery_script.empty() && !spec.elastic->follows_engine;
  options.engine_takes_hosts = spec.elastic->follows_engine;
  return options;
}

std::chrono::nanoseconds wall_now() { return std::chrono::nanoseconds(wall_clock_ns()); }

// The name of a worker in the wire protocol of Horovod, where it outlives ranks.
std::string slot_key(const Host& host, int local_rank) {
  return host.name + ":" + std::to_string(local_rank);
}

rendezvous::RankPlace rank_place(const Plan& plan, const HostPlan& host, const Slot& slot) {
  return {slot.rank,       plan.world_size, slot.local_rank, static_cast<int>(host.slots.size()),
          slot.cross_rank, slot.cross_size, host.index,      host.host.name};
}

// Hosts that failed together should not be asked again together: the state spreads its waits.
std::function<double()> random_numbers() {
  auto random = std::make_shared<std::mt19937>(std::random_device{}());
  return [random] { return std::uniform_real_distribution<double>(0, 1)(*random); };
}

}  // namespace

ElasticRun::ElasticRun(RunContext context)
    : Run(std::move(context)),
      state_(elastic_options(context_.spec), random_numbers(), Clock::now()) {}

ElasticRun::~ElasticRun() { context_.loop.cancel(timer_); }

// An epoch at a time.
Status ElasticRun::make_plan() {
  use_plan({});
  return Ok{};
}

void ElasticRun::connect() {
  context_.narrator.begin_start({});
  context_.narrator.end_start();  // hosts that come and go have no line
  const ElasticSpec& spec = *context_.spec.elastic;
  if (spec.follows_engine || !spec.discovery_script.empty()) return start_discovery();
  context_.loop.post([this] { feed(elastic::HostsListed{settle_named_slots(context_.spec)}); });
}

void ElasticRun::start_discovery() {
  elastic::HostDiscovery::Options options;
  options.timeout = std::min<Milliseconds>(options.timeout, context_.spec.elastic->timeout / 2);
  elastic::HostDiscovery::Handlers handlers;
  if (context_.spec.elastic->follows_engine) {
    follow_engine(options, handlers);
  } else {
    follow_script(options, handlers);
  }
  discovery_ = std::make_unique<elastic::HostDiscovery>(context_.loop, std::move(options),
                                                        std::move(handlers));
  context_.loop.post([this] { discovery_->start(); });
}

void ElasticRun::follow_script(elastic::HostDiscovery::Options& options,
                               elastic::HostDiscovery::Handlers& handlers) {
  options.script = context_.spec.elastic->discovery_script;
  handlers.read = [slots = context_.spec.slots_per_host.value_or(1)](std::string_view output) {
    return elastic::parse_discovered_hosts(output, slots);
  };
  handlers.on_hosts = [this](std::vector<Host> hosts) { on_discovered(std::move(hosts)); };
  handlers.on_failure = [this](std::string why) {
    why = "--host-discovery-script: " + why;
    if (!discovered_) {
      return launch_failed(failure::kDiscovery, make_error(ErrorCode::kFailed, why));
    }
    on_not_discovered(std::move(why));
  };
}

// The hosts that were found first serve as long as the engine does not answer.
void ElasticRun::follow_engine(elastic::HostDiscovery::Options& options,
                               elastic::HostDiscovery::Handlers& handlers) {
  const JobEngine& job = *context_.spec.engine;
  const EngineDescriptor& engine = *find_engine(job.name);
  options.script = job.watch->script;
  options.interval = job.watch->interval;
  engine_hosts_ = context_.spec.hosts;
  handlers.read = [this, &engine, &job](std::string_view output) -> Result<std::vector<Host>> {
    auto now = engine.hosts_now(output, job.job, context_.spec.hosts);
    if (!now) return std::move(now).error();
    engine_end_ = std::move(now->ended);
    return std::move(now->hosts);
  };
  handlers.on_hosts = [this, &engine, &job](std::vector<Host> hosts) {
    if (!engine_end_.empty()) {
      const std::string why = std::string(engine.title) + " has ended the job: " + engine_end_;
      return feed(elastic::AllocationEnded{{std::string(failure::kEngine), why, ""}});
    }
    if (hosts != engine_hosts_) {
      context_.narrator.elastic_message(allocation_change_text(engine, job.job, hosts), true);
      engine_hosts_ = hosts;
    }
    on_discovered(std::move(hosts));
  };
  handlers.on_failure = [this, &job](const std::string& why) {
    on_not_discovered(job.watch->name + ": " + why);
    if (!std::exchange(discovered_, true)) feed(elastic::HostsListed{engine_hosts_});
  };
}

void ElasticRun::on_discovered(std::vector<Host> hosts) {
  discovered_ = true;
  discovery_problem_.clear();
  feed(elastic::HostsListed{std::move(hosts)});
}

// The script runs every second; a problem that persists is reported once.
void ElasticRun::on_not_discovered(std::string why) {
  if (std::exchange(discovery_problem_, why) != why) {
    context_.narrator.elastic_message(why + "; the hosts that are known are kept", true);
  }
  feed(elastic::DiscoveryFailed{std::move(why)});
}

// What events of the job mean for its epochs.
void ElasticRun::on_job_event(const Event& event) {
  if (context_.is_over()) {
    if (discovery_) discovery_->stop();
    context_.loop.cancel(std::exchange(timer_, 0));
    return;
  }
  const bool is_loss = std::holds_alternative<HostFailed>(event) ||
                       std::holds_alternative<HostLost>(event) ||
                       std::holds_alternative<RankEnded>(event);
  // The engine may have taken it away.
  if (is_loss && context_.spec.elastic->follows_engine) discovery_->hurry();
  if (const auto* greeted = std::get_if<HostGreeted>(&event)) {
    if (auto failure = second_name_of_machine(greeted->host)) {
      return context_.feed(HostFailed{greeted->host, std::move(*failure)});
    }
    feed(elastic::AgentGreeted{greeted->host});
  } else if (const auto* ready = std::get_if<HostReady>(&event)) {
    feed(elastic::AgentReady{ready->host});
  } else if (const auto* ended = std::get_if<RankEnded>(&event)) {
    feed(
        elastic::WorkerEnded{ended->exit.rank, ended->exit,
                             std::chrono::nanoseconds(ended->exit.clock_ns) + ended->clock_offset});
  } else if (const auto* finished = std::get_if<HostFinished>(&event)) {
    feed(elastic::AgentGone{finished->host, std::nullopt, wall_now()});
  } else if (const auto* broken = std::get_if<HostFailed>(&event)) {
    feed(elastic::AgentGone{broken->host, broken->failure, wall_now()});
  } else if (const auto* lost = std::get_if<HostLost>(&event)) {
    feed(elastic::AgentGone{lost->host, Failure{std::string(failure::kHostLost), lost->detail, ""},
                            wall_now()});
  }
}

// Several agents on one host are right, one for each time that it came. Two names are a way to try
// an elastic job on one machine, where they take nothing from each other.
std::optional<Failure> ElasticRun::second_name_of_machine(int host) {
  const Fleet& fleet = context_.fleet;
  const auto& hello = fleet.hello(host);
  if (!hosts_are_machines(context_.spec) || !hello) return std::nullopt;
  for (int other = 0; other < fleet.size(); ++other) {
    const auto& known = fleet.hello(other);
    if (other == host || !known || !fleet.is_open(other) || fleet.name(other) == fleet.name(host) ||
        !are_one_machine(*hello, *known)) {
      continue;
    }
    const std::string what = "the same machine as host " + fleet.name(other);
    if (hello->gpus > 0 || !context_.spec.gpus_per_rank.empty()) {
      return Failure{std::string(failure::kUsage),
                     "it is " + what +
                         ", whose ranks would take the same GPUs; list it once, with "
                         "all of its slots",
                     ""};
    }
    context_.narrator.elastic_message("host " + fleet.name(host) + " is " + what, true);
    return std::nullopt;
  }
  return std::nullopt;
}

// Not recursive: an action of one event may cause the next, which then waits for its turn.
void ElasticRun::feed(elastic::ElasticEvent event) {
  events_.push_back(std::move(event));
  if (is_performing_) return;
  is_performing_ = true;
  while (!events_.empty() && !context_.is_over()) {
    const elastic::ElasticEvent next = std::move(events_.front());
    events_.pop_front();
    for (const auto& action : state_.step(next, Clock::now())) perform(action);
  }
  is_performing_ = false;
  arm_deadline();
}

void ElasticRun::arm_deadline() {
  context_.loop.cancel(std::exchange(timer_, 0));
  const auto deadline = state_.next_deadline();
  if (!deadline || context_.is_over()) return;
  timer_ = context_.loop.call_at(*deadline, [this] {
    timer_ = 0;
    feed(elastic::Tick{});
  });
}

void ElasticRun::perform(const elastic::ElasticAction& action) {
  if (const auto* connect = std::get_if<elastic::Connect>(&action)) {
    add_host(connect->host);
  } else if (std::holds_alternative<elastic::PrepareEpoch>(action)) {
    prepare_epoch();
  } else if (std::holds_alternative<elastic::BeginEpoch>(action)) {
    begin_epoch();
  } else if (std::holds_alternative<elastic::BreakEpoch>(action)) {
    break_epoch();
  } else if (const auto* worker = std::get_if<elastic::EndWorker>(&action)) {
    context_.fleet.send(state_.incarnation_of(worker->worker),
                        TerminateRank{worker->worker, context_.spec.grace});
  } else if (const auto* incarnation = std::get_if<elastic::EndIncarnation>(&action)) {
    context_.feed(HostDismissed{incarnation->incarnation});
  } else if (const auto* notify = std::get_if<elastic::NotifyWorkers>(&action)) {
    notify_workers(notify->change);
  } else if (const auto* message = std::get_if<elastic::Message>(&action)) {
    context_.narrator.elastic_message(message->text, message->is_warning);
  } else if (std::holds_alternative<elastic::EndJob>(action)) {
    context_.feed(ElasticOver{state_.cause()});
  }
}

// --- hosts ---------------------------------------------------------------------------------------

void ElasticRun::add_host(const Host& host) {
  const bool local = context_.spec.local_directly && find_local_hosts({host}).front();
  const int index = context_.fleet.add(host, local);
  // An incarnation of a host keeps its index for good; a host that comes back is a new one.
  plan_.hosts.push_back({host, index, {}});
  context_.feed(HostAdded{});
  if (auto failed = context_.fleet.connect(index, Clock::now() + context_.spec.start_timeout)) {
    context_.feed(HostFailed{index, std::move(*failed)});
  }
}

// --- an epoch ------------------------------------------------------------------------------------

void ElasticRun::prepare_epoch() {
  const auto fail = [this](const Failure& failure) {
    // Before anything runs it is the job that cannot be; later, the hosts that were to join it.
    if (state_.epoch() == 0)
      return context_.feed(LaunchFailed{failure, exit_code_of_failure(failure.code)});
    for (const int incarnation : std::vector<int>(state_.new_incarnations()))
      context_.feed(HostFailed{incarnation, failure});
  };
  const auto choice = choose_network();
  if (const auto* failure = std::get_if<Failure>(&choice)) return fail(*failure);
  const auto& network = std::get<NetworkChoice>(choice);
  if (auto opened = open_rendezvous(network); !opened) {
    return fail({std::string(failure::kRendezvous), opened.error().message, ""});
  }
  if (auto added = add_ranks(); !added) return launch_failed(failure::kOutput, added.error());
  send_orders(network);
}

// For each host of the epoch's plan; of several agents on one host any one speaks for it.
std::variant<NetworkChoice, Failure> ElasticRun::choose_network() const {
  std::vector<HostNetwork> networks;
  for (const HostPlan& host : state_.plan().hosts) {
    networks.push_back(context_.fleet.network(state_.seats()[host.slots.front().rank].incarnation));
  }
  const std::vector<ProbeResult> answers(networks.size());
  return launcher::choose_network(networks, own_network(host_interfaces()),
                                  context_.spec.network_interfaces, answers, Hosts::kMayCome);
}

Status ElasticRun::open_rendezvous(const NetworkChoice& network) {
  interfaces_.clear();
  for (const HostRoute& route : network.hosts) interfaces_.push_back(route.interface);
  // The first epoch starts a server; later ones admit the new hosts to it, so that those which stay
  // keep their connections.
  auto access = access_for(state_.new_incarnations());
  if (rendezvous_) {
    for (const Cidr& host : access.allow) rendezvous_->service().admit_also(host);
    for (const std::string& address : network.listen_addresses) {
      HORA_TRY(rendezvous_->listen_also(address));
    }
    return Ok{};
  }
  HORA_TRY(start_rendezvous(state_.plan(), network, std::move(access)));
  return watch_scopes();
}

// The fleet, the streams and the outcome know workers by numbers that are never used again,
// while ranks change with every epoch.
Status ElasticRun::add_ranks() {
  const auto& seats = state_.seats();
  for (std::size_t rank = 0; rank < seats.size(); ++rank) {
    if (!seats[rank].is_new) continue;
    // Numbers of places that were planned and never taken are skipped.
    for (; known_workers_ <= seats[rank].worker; ++known_workers_) {
      const int incarnation = state_.incarnation_of(known_workers_);
      HORA_TRY(streams_->add_rank(incarnation,
                                  {static_cast<int>(rank), state_.local_rank_of(known_workers_),
                                   state_.host_of(incarnation).name}));
    }
    const int local_rank = state_.local_rank_of(seats[rank].worker);
    plan_.hosts[seats[rank].incarnation].slots.push_back({seats[rank].worker, local_rank, 0, 1});
  }
  plan_.world_size = known_workers_;
  return Ok{};
}

void ElasticRun::send_orders(const NetworkChoice& network) {
  report_vendor_parts();
  const Plan& plan = state_.plan();
  const auto& seats = state_.seats();
  std::vector<bool> same_machine;
  for (const HostPlan& host : plan.hosts) {
    same_machine.push_back(!context_.fleet.is_remote(seats[host.slots.front().rank].incarnation));
  }
  // Where rank 0 is to listen for torch.distributed: free there a moment ago.
  context_.identity.master_port = context_.fleet.hello(seats.front().incarnation)->free_port;
  auto orders = make_orders(context_.spec, plan, network.hosts, same_machine, context_.identity,
                            context_.environment);
  for (HostOrder& order : orders) add_environment(order);
  for (const int incarnation : state_.new_incarnations()) {
    context_.fleet.ship(incarnation, context_.ship_files);
    reach(incarnation, Stage::kPrepare);
    HostOrder order = elastic::order_of_incarnation(orders, seats, incarnation, state_.epoch() + 1);
    use_vendor_paths(order, context_.fleet.vendor_paths(incarnation));
    context_.fleet.send(incarnation, order);
  }
}

// Kept until the next epoch: a reply that got lost is asked for again.
void ElasticRun::report_place(int worker, int local_rank, const Host& host, const std::string& slot,
                              const std::string& place) {
  rendezvous::KvService& service = rendezvous_->service();
  // A worker asks with or without knowledge of the last state; both get the same place.
  for (const bool knows : {false, true}) {
    const auto key = rendezvous::place_key({worker, state_.epoch() - 1, knows});
    (void)service.set(rendezvous::scope::kElasticPlace, key, place);
  }
  service.answer(rendezvous::scope::kRankAndSize, slot_key(host, local_rank), slot);
}

void ElasticRun::begin_epoch() {
  const Plan& plan = state_.plan();
  rendezvous_->begin_round(plan);
  host_updates_ = 0;
  for (const HostPlan& host : plan.hosts) {
    for (const Slot& slot : host.slots) {
      const auto& seat = state_.seats()[static_cast<std::size_t>(slot.rank)];
      // It reads its place from its environment.
      if (seat.is_new) continue;
      const auto place = rank_place(plan, host, slot);
      const std::string& interface = interfaces_[static_cast<std::size_t>(host.index)];
      report_place(seat.worker, slot.local_rank, host.host, rendezvous::slot_text(place),
                   rendezvous::encode_elastic_place({place, state_.epoch(), interface}));
      streams_->sinks().relabel(seat.worker, {slot.rank, slot.local_rank, host.host.name});
    }
  }
  for (const int worker : state_.dismissed()) {
    report_place(worker, state_.local_rank_of(worker),
                 state_.host_of(state_.incarnation_of(worker)), rendezvous::no_slot_text(),
                 rendezvous::no_slot_text());
  }
  for (const int incarnation : state_.new_incarnations()) {
    context_.fleet.send(incarnation, StartRanks{});
  }
  rendezvous_->deliver();
  context_.narrator.epoch_began(state_.epoch(), plan.world_size, elastic::describe_plan(plan));
  if (state_.epoch() > 1) return;
  context_.feed(ElasticBegun{});
  streams_->start_input();
  context_.on_running();
}

// Workers that meet for an epoch which will never be complete learn it from either key.
void ElasticRun::break_epoch() {
  const std::string epoch = std::to_string(state_.epoch());
  rendezvous::KvService& service = rendezvous_->service();
  (void)service.set(rendezvous::scope::kElasticPlace, rendezvous::void_key(epoch), "1");
  (void)service.set(rendezvous::scope::kControl, "round-" + epoch,
                    std::string(rendezvous::kVoidEpoch));
  rendezvous_->deliver();
}

// --- messages from and to workers ----------------------------------------------------------------

Status ElasticRun::watch_scopes() {
  rendezvous::KvService::ScopeWatch ours;
  ours.on_wait = [this](std::string_view key) {
    const auto question = rendezvous::parse_place_key(key);
    if (!question || question->epoch != state_.epoch()) return;
    context_.loop.post([this, asked = *question] {
      if (!context_.is_over()) feed(elastic::WorkerAsked{asked.worker, asked.knows_state});
    });
  };
  ours.on_write = [this](std::string_view key, const std::string& value) {
    const auto message = rendezvous::parse_unreached(key, value);
    if (!message) return;
    context_.loop.post([this, message = *message] {
      if (context_.is_over()) return;
      feed(elastic::PeerUnreached{message.epoch, message.rank, message.peer.is_host,
                                  message.peer.number});
    });
  };
  rendezvous_->service().watch_scope(std::string(rendezvous::scope::kElasticPlace), ours);
  rendezvous::KvService::ScopeWatch theirs;
  theirs.holds = true;
  theirs.on_wait = [this](std::string_view key) {
    context_.loop.post([this, asked = std::string(key)] {
      for (const auto& seat : state_.seats()) {
        if (context_.is_over() || slot_key(state_.host_of(seat.incarnation),
                                           state_.local_rank_of(seat.worker)) != asked) {
          continue;
        }
        return feed(elastic::WorkerAsked{seat.worker, true});
      }
    });
  };
  rendezvous_->service().watch_scope(std::string(rendezvous::scope::kRankAndSize), theirs);
  // Programs built on the real Horovod learn of new hosts by a call to their own server.
  if (context_.spec.runtime != RuntimeKind::kHost) return Ok{};
  auto notifier = elastic::HorovodNotifier::start();
  if (!notifier) return std::move(notifier).error();
  notifier_ = std::move(*notifier);
  rendezvous::KvService::ScopeWatch addresses;
  addresses.on_write = [this](std::string_view key, const std::string& value) {
    context_.loop.post(
        [this, slot = std::string(key), value] { notifier_->remember(slot, value); });
  };
  rendezvous_->service().watch_scope(std::string(rendezvous::scope::kWorkerAddresses), addresses);
  return Ok{};
}

void ElasticRun::notify_workers(elastic::PlanChange change) {
  // The bits of HostUpdateResult: 1 removed, 2 added.
  const int result = (change.removed ? 1 : 0) | (change.added ? 2 : 0);
  const auto key = rendezvous::host_update_key(state_.epoch(), ++host_updates_);
  (void)rendezvous_->service().set(rendezvous::scope::kElasticPlace, key, std::to_string(result));
  rendezvous_->deliver();
  if (!notifier_) return;
  const auto& first = state_.seats().front();
  notifier_->notify(slot_key(state_.host_of(first.incarnation), state_.local_rank_of(first.worker)),
                    result);
}

}  // namespace hora::launcher
