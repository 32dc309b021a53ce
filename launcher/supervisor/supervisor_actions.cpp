// SPDX-License-Identifier: Apache-2.0
// How a Supervisor obeys its JobState: network, orders, start, end.
#include <numeric>

#include "launcher/agent/host_facts.h"
#include "launcher/failures/exit_code.h"
#include "launcher/failures/failure_code.h"
#include "launcher/failures/proof.h"
#include "launcher/startup/start_report.h"
#include "launcher/supervisor/supervisor.h"
#include "rendezvous/os/log.h"

namespace hora::launcher {

namespace {

constexpr std::string_view kComponent = "horarun";

}  // namespace

void Supervisor::feed(const Event& event) {
  const bool was_ending = state_->ending();
  const auto actions = state_->step(event, os::Clock::now());
  if (!was_ending && state_->ending()) {
    const auto& cause = state_->outcome().cause;
    const std::string_view code =
        cause ? std::string_view(cause->failure.code) : std::string_view();
    // Time was up for a host, or for all of them: where did the others stand?
    if (code == failure::kStartTimeout || code == failure::kConnectTimeout ||
        code == failure::kShellTimeout || code == failure::kSshBusy) {
      board_at_timeout_ =
          start_timeout_text(display_.board(), os::Clock::now(), reach_words(spec_));
    }
    display_.stop();
  }
  for (const Action& action : actions) perform(action);
  if (!state_->done()) arm_deadline();
  if (elastic_) tell_elastic(event);
}

void Supervisor::perform(const Action& action) {
  if (std::holds_alternative<PrepareAll>(action)) {
    prepare_all();
  } else if (std::holds_alternative<StartAll>(action)) {
    start_all();
  } else if (const auto* terminate = std::get_if<TerminateHost>(&action)) {
    if (hosts_[terminate->host].link) {
      hosts_[terminate->host].link->send(
          FrameType::kTerminate, u32_payload(static_cast<std::uint32_t>(terminate->grace.count())));
    }
  } else if (const auto* drop = std::get_if<DropHost>(&action)) {
    if (hosts_[drop->host].link) hosts_[drop->host].link->close();
  } else if (std::holds_alternative<Finish>(action)) {
    finish();
  }
}

void Supervisor::prepare_all() {
  timings_.mark("all agents answered");
  if (!open_hosts_.empty()) {
    if (auto counted = count_gpu_slots(); !counted) {
      return launch_failed(failure::kUsage, counted.error());
    }
  }
  const auto probes = candidate_probes(host_networks(), spec_.network_interfaces);
  hosts_to_probe_ = 0;
  for (std::size_t i = 0; i < hosts_.size() && i < probes.size(); ++i) {
    if (probes[i].targets.empty()) continue;
    reach(static_cast<int>(i), Stage::kRoute);
    hosts_[i].link->send(probes[i]);
    ++hosts_to_probe_;
  }
  if (hosts_to_probe_ == 0) send_orders();
}

void Supervisor::on(int host, ProbeResult result) {
  hosts_[host].probe = std::move(result);
  if (--hosts_to_probe_ > 0) return;
  timings_.mark("network probed");
  if (!state_->ending()) send_orders();
}

std::vector<HostNetwork> Supervisor::host_networks() const {
  std::vector<HostNetwork> networks;
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    networks.push_back(network_of_host(static_cast<int>(i)));
  }
  return networks;
}

HostNetwork Supervisor::network_of_host(int host) const {
  return host_network(name_of(host), *hosts_[host].hello, hosts_[host].remote);
}

HostNetwork Supervisor::own_network() const {
  HostNetwork own;
  own.name = "the launcher's machine";
  own.boot_id = machine_id();
  own.interfaces = host_interfaces();
  return own;
}

void Supervisor::send_orders() {
  std::vector<ProbeResult> answers;
  for (const HostRun& run : hosts_) answers.push_back(run.probe.value_or(ProbeResult{}));
  auto choice = choose_network(host_networks(), own_network(), spec_.network_interfaces, answers);
  if (auto* failure = std::get_if<Failure>(&choice)) {
    return feed(LaunchFailed{std::move(*failure), kExitLauncher});
  }
  const auto& network = std::get<NetworkChoice>(choice);
  for (std::size_t i = 0; i < network.hosts.size(); ++i) {
    events_.emit("network", {{"host", name_of(static_cast<int>(i))},
                             {"interface", network.hosts[i].interface},
                             {"address", network.hosts[i].address},
                             {"reason", network.hosts[i].reason}});
    os::log_info(kComponent, name_of(static_cast<int>(i)) + ": " + network.hosts[i].interface +
                                 " " + network.hosts[i].address + ": " + network.hosts[i].reason);
  }
  const bool by_address = spec_.runtime == RuntimeKind::kHost;
  auto meeting = JobRendezvous::start(
      *loop_, plan_, network.listen_addresses,
      job_access(identity_.token, by_address ? host_networks() : std::vector<HostNetwork>()),
      accept_stream_);
  if (!meeting) return launch_failed(failure::kRendezvous, meeting.error());
  rendezvous_ = std::move(*meeting);
  identity_.rendezvous_port = rendezvous_->port();
  os::log_info(kComponent, "rendezvous on port " + std::to_string(identity_.rendezvous_port));
  if (auto shipped = send_ship_files(); !shipped) {
    return launch_failed(failure::kShip, shipped.error());
  }
  identity_.master_port = hosts_[0].hello->free_port;
  std::vector<bool> same_machine;
  for (const HostRun& run : hosts_) same_machine.push_back(!run.remote);
  auto orders = make_orders(spec_, plan_, network.hosts, same_machine, identity_, environment_);
  for (std::size_t i = 0; i < orders.size(); ++i) {
    reach(static_cast<int>(i), Stage::kPrepare);
    hosts_[i].link->send(orders[i]);
  }
}

Status Supervisor::pack_ship_files() {
  for (const std::string& path : spec_.ship_files) {
    auto frames = ship_file_frames(path);
    if (!frames) return std::move(frames).error();
    shipments_.push_back(std::make_shared<const std::string>(std::move(*frames)));
  }
  return Ok{};
}

Status Supervisor::send_ship_files() {
  std::vector<int> all(hosts_.size());
  std::iota(all.begin(), all.end(), 0);
  return send_ship_files(all);
}

Status Supervisor::send_ship_files(const std::vector<int>& hosts) {
  if (!packed_) return packed_.error();
  for (const auto& shared : shipments_) {
    for (const int host : hosts) {
      hosts_[host].link->send_shared(shared);
      hosts_[host].shipped_bytes += shared->size();
    }
  }
  return Ok{};
}

void Supervisor::start_all() {
  timings_.mark("all hosts ready");
  hosts_to_start_ = static_cast<int>(hosts_.size());
  for (HostRun& run : hosts_) run.link->send(FrameType::kStart);
  streams_->start_input();
}

void Supervisor::launch_failed(std::string_view code, const Error& error) {
  feed(LaunchFailed{{std::string(code), error.message, ""}, exit_code_of_failure(code)});
}

void Supervisor::finish() {
  timings_.mark("all ranks ended");
  flushing_ = true;
  // By way of the loop: the end may come before it runs.
  if (!streams_) return loop_->post([this] { leave(); });
  streams_->finish([this] { leave(); });
}

}  // namespace hora::launcher
