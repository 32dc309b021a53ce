// SPDX-License-Identifier: Apache-2.0
// Each agent gets an order without ranks: it prepares everything that ranks would need, reports
// where the runtime lies on its host, and is ended.
#include "launcher/runs/mpi_preparation.h"

#include <algorithm>

#include "launcher/failures/failure_code.h"

namespace hora::launcher {

namespace {

void add_once(std::vector<std::string>& list, const std::string& text) {
  if (!text.empty() && std::find(list.begin(), list.end(), text) == list.end()) {
    list.push_back(text);
  }
}

}  // namespace

JobSpec MpiPreparation::job_of(JobSpec spec) {
  spec.command = {"true"};  // never executed
  spec.output_directory.clear();
  spec.report_files.clear();
  spec.stdin_policy = StdinPolicy::kNone;
  spec.timeout.reset();   // mpirun keeps it
  spec.end_with.reset();  // the process is mpirun then
  spec.bind = "none";
  spec.gpus_per_rank.clear();
  spec.timings = false;
  return spec;
}

Status MpiPreparation::make_plan() {
  for (Host& host : settle_named_slots(context_.spec)) {
    host.slots = 1;
    plan_.hosts.push_back({std::move(host), static_cast<int>(plan_.hosts.size()), {}});
  }
  return Ok{};
}

void MpiPreparation::on_network(const NetworkChoice& network) {
  for (const HostRoute& route : network.hosts) {
    if (!route.interfaces.empty()) add_once(findings_.interfaces, route.interfaces.front());
    if (!route.address.empty()) add_once(findings_.addresses, route.address);
  }
  send_orders(network);
}

void MpiPreparation::on_ready(int host, AgentReady ready) {
  const bool needed = context_.spec.runtime == RuntimeKind::kHora;
  if (needed && ready.bundle.empty()) {
    return context_.feed(HostFailed{
        host, {std::string(failure::kShip), "the path of the runtime cannot be used there", ""}});
  }
  if (needed) add_once(findings_.bundles, ready.bundle);
}

// An agent without ranks has nothing left to do, and says goodbye.
void MpiPreparation::start_all() {
  context_.narrator.mark("all hosts ready");
  context_.fleet.send_all(TerminateRanks{});
}

}  // namespace hora::launcher
