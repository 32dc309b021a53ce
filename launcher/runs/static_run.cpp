// SPDX-License-Identifier: Apache-2.0
#include "launcher/runs/static_run.h"

#include <numeric>

#include "launcher/failures/failure_code.h"
#include "launcher/fleet/local_hosts.h"
#include "launcher/protocol/messages.h"
#include "rendezvous/net/socket.h"

namespace hora::launcher {

namespace {

// Descriptors for connections to the rendezvous, those of unauthenticated clients included.
constexpr std::size_t kRendezvousFiles = 8'192;
constexpr Milliseconds kOwnConnection{200};

}  // namespace

Status StaticRun::make_plan() {
  std::vector<Host> hosts = settle_named_slots(context_.spec);
  if (!has_open_slots(hosts)) {
    auto plan = plan_job(context_.spec, hosts);
    if (!plan) return std::move(plan).error();
    HORA_TRY(context_.on_planned(*plan));
    use_plan(std::move(*plan));
    return Ok{};
  }
  for (Host& host : hosts) {
    if (host.slots == 0) continue;
    plan_.hosts.push_back({host, static_cast<int>(plan_.hosts.size()), {}});
    open_hosts_.push_back(std::move(host));
  }
  return Ok{};
}

Status StaticRun::open_streams() { return streams_ ? streams_->open() : Status(Ok{}); }

std::size_t StaticRun::files_needed() const {
  const bool has_files = !context_.spec.output_directory.empty();
  return kRendezvousFiles + (has_files ? 2 * static_cast<std::size_t>(plan_.world_size) : 0);
}

// The plan takes hosts in order, so those that it leaves out are the last ones.
Status StaticRun::settle_slots() {
  if (open_hosts_.empty()) return Ok{};
  std::vector<int> gpus;
  for (const auto& hello : hellos_of(context_.fleet)) gpus.push_back(hello->gpus);
  auto hosts = settle_gpu_slots(open_hosts_, gpus, context_.spec.gpus_per_rank);
  if (!hosts) return std::move(hosts).error();
  auto plan = plan_job(*hosts, context_.spec.num_proc, context_.spec.map_by);
  if (!plan) return std::move(plan).error();
  const int needed = static_cast<int>(plan->hosts.size());
  for (int host = needed; host < context_.fleet.size(); ++host) context_.feed(HostUnneeded{host});
  context_.fleet.keep_first(needed);
  open_hosts_.clear();
  Status possible = context_.on_planned(*plan);
  use_plan(std::move(*plan));
  if (!possible) return possible;
  return streams_->open();
}

void StaticRun::on_network(const NetworkChoice& network) {
  std::vector<int> all(static_cast<std::size_t>(context_.fleet.size()));
  std::iota(all.begin(), all.end(), 0);
  if (auto opened = start_rendezvous(plan_, network, access_for(all)); !opened) {
    return launch_failed(failure::kRendezvous, opened.error());
  }
  if (!network.relayed) return order_ranks(network);
  network_ = network;
  relay_ = std::make_unique<RelayChannels>(context_.loop, [this](const RelayMessage& message) {
    if (!context_.fleet.is_open(0)) return;
    std::visit([this](const auto& each) { context_.fleet.send(0, each); }, message);
  });
  context_.fleet.send(0, OpenRelay{network.hosts[0].address});
}

// The real Horovod's workers show no token: the rendezvous knows them by their addresses, which a
// relay hides.
WayBack StaticRun::way_back() const {
  if (context_.spec.runtime == RuntimeKind::kHost) return WayBack::kNeeded;
  return context_.spec.pods ? WayBack::kRelay : WayBack::kOrRelay;
}

// Only the first host is asked to relay; the conversation refuses others that speak of it.
void StaticRun::on_relay_port(int port) {
  if (port == 0) {
    return launch_failed(
        failure::kNetwork,
        make_error(ErrorCode::kFailed, context_.fleet.name(0) + " cannot listen on " +
                                           network_.hosts[0].address + " for the ranks"));
  }
  context_.identity.rendezvous_port = port;
  order_ranks(network_);
}

void StaticRun::on_relayed(const RelayMessage& message) {
  if (const auto* opened = std::get_if<RelayOpened>(&message)) return open_channel(opened->number);
  if (const auto* taken = std::get_if<RelayedBytesTaken>(&message)) {
    return relay_->on_taken(taken->number);
  }
  const auto& relayed = std::get<RelayedBytes>(message);
  relay_->on_data(relayed.number, relayed.bytes);
}

// The rendezvous sees a client of its own machine; the token identifies it.
void StaticRun::open_channel(RelayChannels::Number number) {
  if (relay_->has(number)) return;
  const Endpoint own{*parse_ip_address("127.0.0.1"),
                     static_cast<std::uint16_t>(rendezvous_->port())};
  // It connects to a listener of this process, so it succeeds at once or never.
  auto socket = net::connect_tcp(own, Clock::now() + kOwnConnection);
  if (socket && relay_->size() < kMostRelayedConnections) {
    return relay_->add(number, std::move(*socket));
  }
  context_.fleet.send(0, RelayedBytes{number});
}

void StaticRun::order_ranks(const NetworkChoice& network) {
  std::vector<int> all(static_cast<std::size_t>(context_.fleet.size()));
  std::iota(all.begin(), all.end(), 0);
  context_.identity.master_port = context_.fleet.hello(0)->free_port;
  for (const int host : all) context_.fleet.ship(host, context_.ship_files);
  send_orders(network);
  // A single host has no other to wait for: the start follows the order, which saves a round trip.
  // An agent that cannot prepare the order reports that, and ignores what follows. With a PMI
  // server it becomes ready later than it has read the order.
  starts_with_order_ = context_.fleet.size() == 1 && context_.spec.pmi.empty();
  if (starts_with_order_) context_.fleet.send_start(0);
}

void StaticRun::start_all() {
  context_.narrator.mark("all hosts ready");
  hosts_to_start_ = context_.fleet.size();
  progress_.assign(static_cast<std::size_t>(hosts_to_start_), Stage::kRanks);
  if (!starts_with_order_) context_.fleet.send_all(StartRanks{});
  streams_->start_input();
}

void StaticRun::on_started(int, const Started&) {
  if (--hosts_to_start_ > 0) return;
  context_.narrator.all_ranks_run();
  context_.on_running();
}

// Of ranks that use the runtime: how far they are in finding each other. Later it says that they
// work.
void StaticRun::on_progress(int host, const RankProgress& progress) {
  const std::size_t ranks = plan_.hosts[host].slots.size();
  const Stage stage = progress.worked >= ranks   ? Stage::kWork
                      : progress.joined >= ranks ? Stage::kFirstCollective
                      : progress.meeting > 0     ? Stage::kRendezvous
                                                 : Stage::kRanks;
  Stage& last = progress_[static_cast<std::size_t>(host)];
  if (stage > last) reach(host, last = stage);
}

}  // namespace hora::launcher
