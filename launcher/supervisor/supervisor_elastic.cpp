// SPDX-License-Identifier: Apache-2.0
// How a Supervisor obeys an ElasticState: agents are connected, epochs prepared and begun, workers
// told, while the job runs.
#include <algorithm>
#include <random>

#include "launcher/agent/host_facts.h"
#include "launcher/failures/exit_code.h"
#include "launcher/failures/failure_code.h"
#include "launcher/job/locality.h"
#include "launcher/supervisor/supervisor.h"
#include "rendezvous/contract/elastic_place.h"
#include "rendezvous/contract/store_keys.h"
#include "rendezvous/os/log.h"

namespace hora::launcher {

namespace {

constexpr std::string_view kComponent = "horarun";

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
  options.leave = spec.grace + Milliseconds(15'000);
  options.hosts_are_fixed = spec.elastic->discovery_script.empty();
  return options;
}

std::chrono::nanoseconds wall_now() { return std::chrono::nanoseconds(wall_clock_ns()); }

std::string slot_key(const Host& host, int local_rank) {
  return host.name + ":" + std::to_string(local_rank);
}

rendezvous::RankPlace rank_place(const Plan& plan, const HostPlan& host, const Slot& slot) {
  return {slot.rank,       plan.world_size, slot.local_rank, static_cast<int>(host.slots.size()),
          slot.cross_rank, slot.cross_size, host.index,      host.host.name};
}

}  // namespace

void Supervisor::start_elastic() {
  auto random = std::make_shared<std::mt19937>(std::random_device{}());
  elastic_ = std::make_unique<elastic::ElasticRun>(elastic::ElasticState(
      elastic_options(spec_),
      [random] { return std::uniform_real_distribution<double>(0, 1)(*random); },
      os::Clock::now()));
  display_.begin(*loop_, {});
  display_.stop();
  connector_ = std::make_unique<HostConnector>(
      spec_, installation_, false, [this](int host, Stage stage, std::string_view detail) {
        loop_->post(
            [this, host, stage, text = std::string(detail)] { on_stage(host, stage, text); });
      });
  if (spec_.elastic->discovery_script.empty()) {
    return loop_->post([this] { feed_elastic(elastic::HostsListed{settle_named_slots(spec_)}); });
  }
  elastic::HostDiscovery::Options options;
  options.script = spec_.elastic->discovery_script;
  options.default_slots = spec_.slots_per_host.value_or(1);
  options.patience = std::min<Milliseconds>(options.patience, spec_.elastic->timeout / 2);
  elastic::HostDiscovery::Handlers handlers;
  handlers.on_hosts = [this](std::vector<Host> hosts) {
    elastic_->discovered = true;
    elastic_->discovery_problem.clear();
    feed_elastic(elastic::HostsListed{std::move(hosts)});
  };
  handlers.on_failure = [this](std::string why) {
    why = "--host-discovery-script: " + why;
    if (!elastic_->discovered) {
      return launch_failed(failure::kDiscovery, make_error(ErrorCode::kFailed, why));
    }
    // Each second anew: said once.
    if (std::exchange(elastic_->discovery_problem, why) != why) {
      perform(
          elastic::ElasticAction(elastic::Tell{true, why + "; the hosts that are known are kept"}));
    }
    feed_elastic(elastic::DiscoveryFailed{std::move(why)});
  };
  elastic_->discovery =
      std::make_unique<elastic::HostDiscovery>(*loop_, std::move(options), std::move(handlers));
  loop_->post([this] { elastic_->discovery->start(); });
}

// What events of the job mean for its epochs.
void Supervisor::tell_elastic(const Event& event) {
  if (is_over()) {
    if (elastic_->discovery) elastic_->discovery->stop();
    loop_->cancel(std::exchange(elastic_->timer, 0));
    return;
  }
  if (const auto* greeted = std::get_if<HostGreeted>(&event)) {
    feed_elastic(elastic::AgentGreeted{greeted->host});
  } else if (const auto* ready = std::get_if<HostReady>(&event)) {
    feed_elastic(elastic::AgentReady{ready->host});
  } else if (const auto* ended = std::get_if<RankEnded>(&event)) {
    feed_elastic(elastic::WorkerEnded{ended->exit.rank, ended->exit,
                                      std::chrono::nanoseconds(ended->exit.clock_ns) +
                                          std::chrono::nanoseconds(ended->clock_offset)});
  } else if (const auto* finished = std::get_if<HostFinished>(&event)) {
    feed_elastic(elastic::AgentGone{finished->host, std::nullopt, wall_now()});
  } else if (const auto* broken = std::get_if<HostFailed>(&event)) {
    feed_elastic(elastic::AgentGone{broken->host, broken->failure, wall_now()});
  } else if (const auto* lost = std::get_if<HostLost>(&event)) {
    feed_elastic(elastic::AgentGone{
        lost->host, Failure{std::string(failure::kHostLost), lost->detail, ""}, wall_now()});
  }
}

void Supervisor::feed_elastic(elastic::ElasticEvent event) {
  elastic_->events.push_back(std::move(event));
  if (elastic_->is_obeying) return;
  elastic_->is_obeying = true;
  while (!elastic_->events.empty() && !is_over()) {
    const elastic::ElasticEvent next = std::move(elastic_->events.front());
    elastic_->events.pop_front();
    for (const auto& action : elastic_->state.step(next, os::Clock::now())) perform(action);
  }
  elastic_->is_obeying = false;
  arm_elastic_deadline();
}

void Supervisor::arm_elastic_deadline() {
  loop_->cancel(std::exchange(elastic_->timer, 0));
  const auto deadline = elastic_->state.next_deadline();
  if (!deadline || is_over()) return;
  elastic_->timer = loop_->call_at(*deadline, [this] {
    elastic_->timer = 0;
    feed_elastic(elastic::Tick{});
  });
}

void Supervisor::perform(const elastic::ElasticAction& action) {
  if (const auto* connect = std::get_if<elastic::Connect>(&action)) {
    add_host(connect->host);
  } else if (std::holds_alternative<elastic::PrepareEpoch>(action)) {
    prepare_epoch();
  } else if (std::holds_alternative<elastic::BeginEpoch>(action)) {
    begin_epoch();
  } else if (std::holds_alternative<elastic::BreakEpoch>(action)) {
    break_epoch();
  } else if (const auto* worker = std::get_if<elastic::EndWorker>(&action)) {
    std::string payload = u32_payload(static_cast<std::uint32_t>(worker->worker));
    append_u32(payload, static_cast<std::uint32_t>(spec_.grace.count()));
    hosts_[elastic_->state.incarnation_of(worker->worker)].link->send(FrameType::kEndRank, payload);
  } else if (const auto* incarnation = std::get_if<elastic::EndIncarnation>(&action)) {
    feed(HostDismissed{incarnation->incarnation});
  } else if (const auto* news = std::get_if<elastic::NotifyWorkers>(&action)) {
    notify_workers(news->change);
  } else if (const auto* told = std::get_if<elastic::Tell>(&action)) {
    events_.emit("elastic", {{"message", told->text}, {"warning", told->is_warning}});
    if (told->is_warning || spec_.verbose) tell(told->text + "\n");
  } else if (std::holds_alternative<elastic::EndJob>(action)) {
    feed(ElasticOver{elastic_->state.cause()});
  }
}

// --- hosts ---------------------------------------------------------------------------------------

void Supervisor::add_host(const Host& host) {
  const int index = static_cast<int>(hosts_.size());
  plan_.hosts.push_back({host, index, {}});
  hosts_.emplace_back();
  const bool is_local = spec_.local_directly && find_local_hosts({host}).front();
  hosts_.back().remote = !is_local;
  feed(HostAdded{});
  connect_host(index, os::Clock::now() + spec_.start_timeout);
}

// --- an epoch ------------------------------------------------------------------------------------

void Supervisor::prepare_epoch() {
  const auto fail = [this](const Failure& failure) {
    // Before anything runs it is the job that cannot be; later, the hosts that were to join it.
    if (elastic_->state.epoch() == 0)
      return feed(LaunchFailed{failure, exit_code_of_failure(failure.code)});
    for (const int incarnation : std::vector<int>(elastic_->state.new_incarnations()))
      feed(HostFailed{incarnation, failure});
  };
  const auto choice = choose_epoch_network();
  if (const auto* failure = std::get_if<Failure>(&choice)) return fail(*failure);
  const auto& network = std::get<NetworkChoice>(choice);
  if (auto opened = open_epoch_rendezvous(network); !opened) {
    return fail({std::string(failure::kRendezvous), opened.error().message, ""});
  }
  if (auto shipped = send_ship_files(elastic_->state.new_incarnations()); !shipped) {
    return launch_failed(failure::kShip, shipped.error());
  }
  if (auto added = add_epoch_ranks(); !added) return launch_failed(failure::kOutput, added.error());
  send_epoch_orders(network);
}

// For each host of the epoch's plan; of several agents on one host any one speaks for it.
std::variant<NetworkChoice, Failure> Supervisor::choose_epoch_network() const {
  std::vector<HostNetwork> networks;
  for (const HostPlan& host : elastic_->state.plan().hosts) {
    networks.push_back(
        network_of_host(elastic_->state.seats()[host.slots.front().rank].incarnation));
  }
  const std::vector<ProbeResult> answers(networks.size());
  return choose_network(networks, own_network(), spec_.network_interfaces, answers,
                        Hosts::kMayCome);
}

Status Supervisor::open_epoch_rendezvous(const NetworkChoice& network) {
  elastic_->interfaces.clear();
  for (const HostRoute& route : network.hosts) elastic_->interfaces.push_back(route.interface);
  const bool by_address = spec_.runtime == RuntimeKind::kHost;
  std::vector<HostNetwork> newcomers;
  for (const int incarnation : elastic_->state.new_incarnations()) {
    newcomers.push_back(network_of_host(incarnation));
  }
  const auto access =
      job_access(identity_.token, by_address ? newcomers : std::vector<HostNetwork>());
  if (rendezvous_) {
    for (const Cidr& host : access.allow) rendezvous_->service().admit_also(host);
    for (const std::string& address : network.listen_addresses) {
      HORA_TRY(rendezvous_->listen_also(address));
    }
    return Ok{};
  }
  auto meeting = JobRendezvous::start(*loop_, elastic_->state.plan(), network.listen_addresses,
                                      access, accept_stream_);
  if (!meeting) return std::move(meeting).error();
  rendezvous_ = std::move(*meeting);
  identity_.rendezvous_port = rendezvous_->port();
  return watch_elastic_scopes();
}

Status Supervisor::add_epoch_ranks() {
  const auto& seats = elastic_->state.seats();
  for (std::size_t rank = 0; rank < seats.size(); ++rank) {
    if (!seats[rank].is_new) continue;
    // Numbers of places that were planned and never taken are skipped.
    for (; elastic_->known_workers <= seats[rank].worker; ++elastic_->known_workers) {
      const int incarnation = elastic_->state.incarnation_of(elastic_->known_workers);
      HORA_TRY(streams_->add_rank(incarnation, static_cast<int>(rank)));
    }
    const int local_rank = elastic_->state.local_rank_of(seats[rank].worker);
    plan_.hosts[seats[rank].incarnation].slots.push_back({seats[rank].worker, local_rank, 0, 1});
  }
  plan_.world_size = elastic_->known_workers;
  return Ok{};
}

void Supervisor::send_epoch_orders(const NetworkChoice& network) {
  const Plan& plan = elastic_->state.plan();
  const auto& seats = elastic_->state.seats();
  const int epoch = elastic_->state.epoch() + 1;
  std::vector<bool> same_machine;
  for (const HostPlan& host : plan.hosts) {
    same_machine.push_back(!hosts_[seats[host.slots.front().rank].incarnation].remote);
  }
  identity_.master_port = hosts_[seats.front().incarnation].hello->free_port;
  std::vector<HostOrder> orders =
      make_orders(spec_, plan, network.hosts, same_machine, identity_, environment_);
  for (const int incarnation : elastic_->state.new_incarnations()) {
    const auto host = std::find_if(orders.begin(), orders.end(), [&](const HostOrder& order) {
      return std::any_of(order.ranks.begin(), order.ranks.end(), [&](const RankOrder& rank) {
        return seats[static_cast<std::size_t>(rank.rank)].incarnation == incarnation;
      });
    });
    HostOrder order = *host;
    std::erase_if(order.ranks, [&](const RankOrder& rank) {
      return seats[static_cast<std::size_t>(rank.rank)].incarnation != incarnation;
    });
    for (RankOrder& rank : order.ranks) {
      rank.rank = seats[static_cast<std::size_t>(rank.rank)].worker;
      // Who comes later finds standard input half read.
      if (epoch > 1) rank.stdin_source = StdinSource::kNull;
      rank.environment.emplace_back(rendezvous::env::kWorker, std::to_string(rank.rank));
      rank.environment.emplace_back(rendezvous::env::kRound, std::to_string(epoch));
    }
    reach(incarnation, Stage::kPrepare);
    hosts_[incarnation].link->send(order);
  }
}

void Supervisor::begin_epoch() {
  const elastic::ElasticState& state = elastic_->state;
  rendezvous::KvService& service = rendezvous_->service();
  rendezvous_->begin_round(state.plan());
  elastic_->host_updates = 0;
  const auto answer = [&](int worker, int local_rank, const Host& host, const std::string& slot,
                          const std::string& place) {
    // Kept until the next epoch: a reply that got lost is asked for again.
    for (const bool knows : {false, true}) {
      const auto key = rendezvous::place_key({worker, state.epoch() - 1, knows});
      (void)service.set(rendezvous::scope::kElasticPlace, key, place);
    }
    service.answer(rendezvous::scope::kRankAndSize, slot_key(host, local_rank), slot);
  };
  for (const HostPlan& host : state.plan().hosts) {
    for (const Slot& slot : host.slots) {
      const auto& seat = state.seats()[static_cast<std::size_t>(slot.rank)];
      if (seat.is_new) continue;
      const auto place = rank_place(state.plan(), host, slot);
      answer(
          seat.worker, slot.local_rank, host.host, rendezvous::slot_text(place),
          rendezvous::encode_elastic_place(
              {place, state.epoch(), elastic_->interfaces[static_cast<std::size_t>(host.index)]}));
      streams_->relabel(seat.worker, slot.rank);
    }
  }
  for (const int worker : state.dismissed()) {
    answer(worker, state.local_rank_of(worker), state.host_of(state.incarnation_of(worker)),
           rendezvous::no_slot_text(), rendezvous::no_slot_text());
  }
  for (const int incarnation : state.new_incarnations())
    hosts_[incarnation].link->send(FrameType::kStart);
  rendezvous_->deliver();
  events_.emit("epoch", {{"epoch", std::int64_t{state.epoch()}},
                         {"ranks", std::int64_t{state.plan().world_size}},
                         {"plan", elastic::describe_plan(state.plan())}});
  if (state.epoch() > 1) return;
  feed(ElasticBegun{});
  streams_->start_input();
  watch_for_stall();
}

void Supervisor::break_epoch() {
  const std::string epoch = std::to_string(elastic_->state.epoch());
  rendezvous::KvService& service = rendezvous_->service();
  (void)service.set(rendezvous::scope::kElasticPlace, rendezvous::void_key(epoch), "1");
  (void)service.set(rendezvous::scope::kControl, "round-" + epoch,
                    std::string(rendezvous::kVoidEpoch));
  rendezvous_->deliver();
}

// --- what workers say and are told ---------------------------------------------------------------

Status Supervisor::watch_elastic_scopes() {
  rendezvous::KvService::ScopeWatch ours;
  ours.on_wait = [this](std::string_view key) {
    const auto question = rendezvous::parse_place_key(key);
    if (!question || question->epoch != elastic_->state.epoch()) return;
    loop_->post([this, asked = *question] {
      if (!is_over()) feed_elastic(elastic::WorkerAsked{asked.worker, asked.knows_state});
    });
  };
  rendezvous_->service().watch_scope(std::string(rendezvous::scope::kElasticPlace), ours);
  rendezvous::KvService::ScopeWatch theirs;
  theirs.holds = true;
  theirs.on_wait = [this](std::string_view key) {
    loop_->post([this, asked = std::string(key)] {
      const elastic::ElasticState& state = elastic_->state;
      for (const auto& seat : state.seats()) {
        if (is_over() ||
            slot_key(state.host_of(seat.incarnation), state.local_rank_of(seat.worker)) != asked) {
          continue;
        }
        return feed_elastic(elastic::WorkerAsked{seat.worker, true});
      }
    });
  };
  rendezvous_->service().watch_scope(std::string(rendezvous::scope::kRankAndSize), theirs);
  if (spec_.runtime != RuntimeKind::kHost) return Ok{};
  auto notifier = elastic::HorovodNotifier::start();
  if (!notifier) return std::move(notifier).error();
  elastic_->notifier = std::move(*notifier);
  rendezvous::KvService::ScopeWatch addresses;
  addresses.on_write = [this](std::string_view key, const std::string& value) {
    loop_->post(
        [this, slot = std::string(key), value] { elastic_->notifier->remember(slot, value); });
  };
  rendezvous_->service().watch_scope(std::string(rendezvous::scope::kWorkerAddresses), addresses);
  return Ok{};
}

void Supervisor::notify_workers(elastic::PlanChange change) {
  const int result = (change.removed ? 1 : 0) | (change.added ? 2 : 0);
  const auto key = rendezvous::host_update_key(elastic_->state.epoch(), ++elastic_->host_updates);
  (void)rendezvous_->service().set(rendezvous::scope::kElasticPlace, key, std::to_string(result));
  rendezvous_->deliver();
  if (!elastic_->notifier) return;
  const auto& first = elastic_->state.seats().front();
  elastic_->notifier->notify(slot_key(elastic_->state.host_of(first.incarnation),
                                      elastic_->state.local_rank_of(first.worker)),
                             result);
}

}  // namespace hora::launcher
