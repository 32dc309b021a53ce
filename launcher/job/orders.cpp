// SPDX-License-Identifier: Apache-2.0
// Turns the plan into one order per host. Everything in it is final except "@bundle@", which the
// agent replaces.
#include "launcher/job/orders.h"

#include <algorithm>

#include "launcher/plan/programs.h"

namespace hora::launcher {

namespace {

StdinSource stdin_source(const JobSpec& spec, int rank) {
  const bool streams = spec.stdin_policy == StdinPolicy::kAll ||
                       (spec.stdin_policy == StdinPolicy::kRankZero && rank == 0);
  return streams ? StdinSource::kStream : StdinSource::kNull;
}

// Each host gets the address that it can reach the rendezvous by (`own`), but all hosts get the
// same address for rank 0 (`first`): torch and others take it as MASTER_ADDR.
rendezvous::RendezvousAddress rendezvous_address(const JobSpec& spec, const HostRoute& own,
                                                 const HostRoute& first,
                                                 const JobIdentity& identity) {
  rendezvous::RendezvousAddress place;
  place.job_id = identity.job_id;
  place.rendezvous_address = own.rendezvous_address;
  place.rendezvous_port = identity.rendezvous_port;
  // The real Horovod's workers cannot present a token; the server knows them by their addresses.
  if (spec.runtime == RuntimeKind::kHora) place.token = identity.token;
  place.tls_fingerprint = identity.tls_fingerprint;
  place.interfaces = own.interfaces;
  place.master_address = first.address;
  place.master_port = identity.master_port;
  place.controller = "gloo";
  place.cpu_operations = "gloo";
  place.elastic = spec.elastic.has_value();
  // An option (--cpu-operations) may replace the default.
  for (const EnvironmentVariable& knob : spec.knobs) {
    if (knob.name == rendezvous::env::kCpuOperations) place.cpu_operations = knob.value;
  }
  return place;
}

// A PMI server answers for all ranks, so every host needs the whole map.
std::vector<PmiHost> pmi_hosts(const Plan& plan) {
  std::vector<PmiHost> hosts;
  for (const HostPlan& host : plan.hosts) {
    PmiHost& each = hosts.emplace_back();
    each.name = host.host.name;
    for (const Slot& slot : host.slots) each.ranks.push_back(slot.rank);
  }
  return hosts;
}

// What -x sets for the rank's program. Behind the launcher's environment and before what the rank
// is told; an option that tunes the runtime wins over it, as it does in jobs of one program.
EnvironmentList program_variables(const JobSpec& spec, int rank) {
  EnvironmentList list;
  if (spec.programs.empty()) return list;
  for (const auto& given : spec.programs[program_of_rank(spec.programs, rank)].variables) {
    const bool is_knob =
        std::any_of(spec.knobs.begin(), spec.knobs.end(),
                    [&given](const EnvironmentVariable& knob) { return knob.name == given.name; });
    if (!is_knob) list.emplace_back(given.name, given.value);
  }
  return list;
}

// Every host gets all programs, also those that run elsewhere: a PMI server answers for all ranks.
std::vector<ProgramOrder> more_programs(const JobSpec& spec) {
  std::vector<ProgramOrder> orders;
  int first = 0;
  for (const Program& program : spec.programs) {
    if (first > 0) orders.push_back({first, program.command});
    first += program.ranks;
  }
  return orders;
}

}  // namespace

std::vector<HostOrder> make_orders(const JobSpec& spec, const Plan& plan,
                                   const std::vector<HostRoute>& routes,
                                   const std::vector<bool>& same_machine,
                                   const JobIdentity& identity,
                                   const EnvironmentList& launcher_environment) {
  std::vector<HostOrder> orders;
  for (std::size_t i = 0; i < plan.hosts.size(); ++i) {
    HostOrder order;
    order.job_id = identity.job_id;
    order.working_directory = spec.working_directory;
    order.ship_directory = !spec.ship_files.empty();
    order.argv = spec.command;
    order.more_programs = more_programs(spec);
    const auto forwarded = forwarded_environment(launcher_environment, spec, same_machine[i]);
    order.environment = with_variables(
        forwarded,
        host_variables(rendezvous_address(spec, routes[i], routes[0], identity), forwarded));
    // Only remote hosts have an environment of their own to inherit; here it is the forwarded one
    // already.
    if (!same_machine[i]) order.own_variables = own_variables_of_remote();
    if (spec.runtime == RuntimeKind::kHora) {
      order.prepend_paths = {{"PATH", "@bundle@/bin"},
                             {"LD_LIBRARY_PATH", "@bundle@/lib"},
                             {"PYTHONPATH", "@bundle@/python"}};
    }
    for (const Slot& slot : plan.hosts[i].slots) {
      order.ranks.push_back({slot.rank, slot.local_rank,
                             with_variables(program_variables(spec, slot.rank),
                                            rank_variables(plan, plan.hosts[i], slot)),
                             stdin_source(spec, slot.rank)});
    }
    order.grace_ms = spec.grace.count();
    order.lease_ms = spec.lease.count();
    order.bind = spec.bind;
    order.gpus_per_rank = spec.gpus_per_rank;
    // Several ranks share a host: each library would otherwise start a thread per core for each
    // rank.
    order.limit_threads = true;
    if (!spec.pmi.empty()) {
      order.pmi = spec.pmi;
      order.pmi_hosts = pmi_hosts(plan);
      order.pmi_host = static_cast<int>(i);
    }
    orders.push_back(std::move(order));
  }
  return orders;
}

// Behind the runtime's own folder and before the user's. What is sent is used as a whole: if the
// user's folder had the same libraries, the host would have been found to have them.
void use_vendor_paths(HostOrder& order,
                      const std::vector<std::pair<std::string, std::string>>& paths) {
  for (const auto& path : paths) {
    order.prepend_paths.push_back(path);
    const std::string& name = path.first;
    if (name == "LD_LIBRARY_PATH") continue;
    // Another installation's folder, of the launcher or of the host, would be a second value.
    order.environment.erase(
        std::remove_if(order.environment.begin(), order.environment.end(),
                       [&name](const auto& variable) { return variable.first == name; }),
        order.environment.end());
    if (!order.own_variables.empty()) order.own_variables.push_back("!" + name);
  }
}

}  // namespace hora::launcher
