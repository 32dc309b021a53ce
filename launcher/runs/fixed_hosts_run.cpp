// SPDX-License-Identifier: Apache-2.0
#include "launcher/runs/fixed_hosts_run.h"

#include <algorithm>

#include "launcher/failures/failure_code.h"
#include "launcher/fleet/local_hosts.h"
#include "launcher/machine/host_facts.h"

namespace hora::launcher {

void FixedHostsRun::connect() {
  std::vector<Host> hosts;
  for (const HostPlan& host : plan_.hosts) hosts.push_back(host.host);
  std::vector<bool> local(hosts.size(), false);
  if (context_.spec.local_directly) local = find_local_hosts(hosts);

  std::vector<std::string> names;
  // The local ones first: their ranks inherit our limits, and this one is raised for the others.
  std::vector<int> order;
  for (int i = 0; i < static_cast<int>(hosts.size()); ++i) {
    names.push_back(hosts[i].name);
    context_.fleet.add(std::move(hosts[i]), local[i]);
    order.insert(local[i] ? order.begin() : order.end(), i);
  }
  context_.narrator.begin_start(std::move(names));
  const auto open = [this]() -> Status {
    files_limit_.emplace(64 + 4 * static_cast<std::size_t>(context_.fleet.size()) + files_needed());
    return open_streams();
  };
  // A transport knows why it could not connect, so its deadline is a little before the job's.
  const Milliseconds timeout = context_.spec.start_timeout;
  const auto deadline =
      context_.narrator.start() + timeout - std::min<Milliseconds>(Milliseconds(250), timeout / 10);
  for (const int host : order) {
    if (!local[host] && !files_limit_) {
      if (auto opened = open(); !opened) return launch_failed(failure::kUsage, opened.error());
    }
    if (auto failed = context_.fleet.connect(host, deadline)) {
      context_.feed(HostFailed{host, std::move(*failed)});
      if (context_.is_over()) return;
    }
  }
  if (!files_limit_) {
    if (auto opened = open(); !opened) return launch_failed(failure::kUsage, opened.error());
  }
  context_.narrator.mark("connections begun");
}

void FixedHostsRun::prepare_all() {
  context_.narrator.mark("all agents answered");
  if (auto known = check_machines(); !known) return launch_failed(failure::kUsage, known.error());
  report_vendor_parts();
  if (auto settled = settle_slots(); !settled) {
    return launch_failed(failure::kUsage, settled.error());
  }
  std::vector<NetworkSurvey::Member> members;
  for (int host = 0; host < context_.fleet.size(); ++host) {
    members.push_back({host, context_.fleet.network(host)});
  }
  NetworkSurvey::Handlers handlers;
  handlers.probe = [this](int host, const Probe& probe) {
    reach(host, Stage::kRoute);
    context_.fleet.send(host, probe);
  };
  // Hosts may have been lost while the others answered, and the job with them.
  handlers.done = [this](NetworkSurvey::Choice choice) {
    if (context_.is_over()) return;
    if (auto* failure = std::get_if<Failure>(&choice)) {
      return context_.feed(LaunchFailed{std::move(*failure), kExitLauncher});
    }
    const auto& network = std::get<NetworkChoice>(choice);
    for (std::size_t i = 0; i < network.hosts.size(); ++i) {
      context_.narrator.network_chosen(context_.fleet.name(static_cast<int>(i)), network.hosts[i]);
    }
    on_network(network);
  };
  survey_ = std::make_unique<NetworkSurvey>(std::move(members), network_here(),
                                            context_.spec.network_interfaces, std::move(handlers),
                                            way_back());
  survey_->begin();
}

Status FixedHostsRun::check_machines() const {
  const JobSpec& spec = context_.spec;
  if (!hosts_are_machines(spec) || spec.manages_cache || plan_.hosts.size() < 2) return Ok{};
  std::vector<Host> hosts;
  for (const HostPlan& host : plan_.hosts) hosts.push_back(host.host);
  return check_one_name_each(hosts, hellos_of(context_.fleet));
}

// An agent that is our child has looked at this machine's interfaces.
HostNetwork FixedHostsRun::network_here() const {
  for (int host = 0; host < context_.fleet.size(); ++host) {
    if (context_.fleet.is_remote(host)) continue;
    return own_network(context_.fleet.network(host).interfaces);
  }
  return own_network(host_interfaces());
}

void FixedHostsRun::send_orders(const NetworkChoice& network) {
  for (int host = 0; host < context_.fleet.size(); ++host) {
    reach(host, Stage::kPrepare);
    // Of hosts that share no secret, this machine is the first.
    if (host > 0 && context_.spec.listen && context_.spec.listen->own_commands) {
      context_.fleet.send(host, make_place_order(plan_, static_cast<std::size_t>(host),
                                                 network.hosts, context_.identity));
      continue;
    }
    HostOrder order =
        make_order(context_.spec, plan_, static_cast<std::size_t>(host), network.hosts,
                   !context_.fleet.is_remote(host), context_.identity, context_.environment);
    use_vendor_paths(order, context_.fleet.vendor_paths(host));
    add_environment(order);
    context_.fleet.send(host, order);
  }
}

void FixedHostsRun::on_probe_result(int host, ProbeResult result) {
  if (survey_) survey_->on_result(host, std::move(result));
}

}  // namespace hora::launcher
