// SPDX-License-Identifier: Apache-2.0
#include "launcher/runs/run.h"

#include "launcher/failures/failure_code.h"
#include "launcher/machine/host_facts.h"
#include "launcher/parts/python_environment.h"
#include "rendezvous/os/log.h"

namespace hora::launcher {

void Run::use_plan(Plan plan) {
  plan_ = std::move(plan);
  streams_ = std::make_unique<JobStreams>(
      context_.loop, context_.spec, plan_,
      JobStreams::Handlers{[this](int host, const StreamMessage& message) {
                             if (!context_.fleet.is_open(host)) return false;
                             std::visit([&](const auto& each) { context_.fleet.send(host, each); },
                                        message);
                             return true;
                           },
                           context_.on_console_broken, context_.narrator.row_is_open()});
}

void Run::launch_failed(std::string_view code, const Error& error) {
  context_.feed(LaunchFailed{{std::string(code), error.message, ""}, exit_code_of_failure(code)});
}

void Run::reach(int host, Stage stage) {
  context_.narrator.reach(host, context_.fleet.name(host), stage);
}

void Run::report_vendor_parts() {
  for (const auto& sent : context_.fleet.take_sent_vendor_parts()) {
    context_.narrator.vendor_part_sent(sent.name, sent.bytes, sent.hosts);
  }
}

// After everything else that changes PATH, so that the environment comes first.
void Run::add_environment(HostOrder& order) const {
  const auto& environment = context_.ship_files.environment();
  if (!environment) return;
  use_environment(order, environment_paths(*environment));
  order.argv.front() = program_there(*environment, order.argv.front());
  for (ProgramOrder& more : order.more_programs) {
    more.argv.front() = program_there(*environment, more.argv.front());
  }
}

HostNetwork Run::own_network(std::vector<InterfaceInfo> interfaces) {
  HostNetwork own;
  own.name = "the launcher's machine";
  own.boot_id = machine_id();
  own.interfaces = std::move(interfaces);
  return own;
}

rendezvous::AccessPolicy Run::access_for(const std::vector<int>& hosts) const {
  std::vector<HostNetwork> known;
  if (context_.spec.runtime == RuntimeKind::kHost) {
    for (const int host : hosts) known.push_back(context_.fleet.network(host));
  }
  return job_access(context_.identity.token, known);
}

Status Run::start_rendezvous(const Plan& plan, const NetworkChoice& network,
                             rendezvous::AccessPolicy access) {
  auto started = JobRendezvous::start(context_.loop, plan, network.listen_addresses,
                                      std::move(access), context_.accept_stream);
  if (!started) return std::move(started).error();
  rendezvous_ = std::move(*started);
  context_.identity.rendezvous_port = rendezvous_->port();
  os::log_info("horarun", "rendezvous on port " + std::to_string(rendezvous_->port()));
  return Ok{};
}

}  // namespace hora::launcher
