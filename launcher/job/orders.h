// SPDX-License-Identifier: Apache-2.0
// The plan, the network and the meeting place become one order per host.  [pure]
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "launcher/network/network_choice.h"
#include "launcher/plan/job_spec.h"
#include "launcher/plan/plan.h"
#include "launcher/plan/worker_environment.h"
#include "launcher/protocol/messages.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

struct JobIdentity {
  std::string job_id;
  std::string token;            // presented to the rendezvous by the shipped runtime; a secret
  std::string tls_fingerprint;  // empty: the rendezvous speaks plain HTTP
  int rendezvous_port = 0;
  int master_port = 0;  // free on rank 0's host
};

// The order of plan.hosts[host]; `routes[i]` belongs to plan.hosts[i]. Thousands of orders take
// much more memory than their inputs: a large job makes each when it is sent.
HostOrder make_order(const JobSpec& spec, const Plan& plan, std::size_t host,
                     const std::vector<HostRoute>& routes, bool same_machine,
                     const JobIdentity& identity, const EnvironmentList& launcher_environment);

// For a host that runs its own command line: no command and no variable of this one.
HostOrder make_place_order(const Plan& plan, std::size_t host, const std::vector<HostRoute>& routes,
                           const JobIdentity& identity);

// What that host takes from such an order.
struct OrderedPlace {
  Plan plan;                      // the host of rank 0, without ranks, and this one
  std::vector<HostRoute> routes;  // likewise
  JobIdentity identity;
};
// Its sender has proved nothing: all that is in it is a number, an address or a word. Errors:
// something is not, or there are more ranks than `slots`.
Result<OrderedPlace> read_place_order(const HostOrder& order, const Host& first, const Host& own,
                                      int slots);

// All of them; `same_machine[i]` belongs to plan.hosts[i], too.
std::vector<HostOrder> make_orders(const JobSpec& spec, const Plan& plan,
                                   const std::vector<HostRoute>& routes,
                                   const std::vector<bool>& same_machine,
                                   const JobIdentity& identity,
                                   const EnvironmentList& launcher_environment);

// The ranks of that host use vendors' libraries that were sent there: `paths` come first in
// LD_LIBRARY_PATH, and replace what the order says of the other variables.
void use_vendor_paths(HostOrder& order,
                      const std::vector<std::pair<std::string, std::string>>& paths);

// The ranks use a Python environment that was sent along: `paths` come first in PATH and
// LD_LIBRARY_PATH, and replace other variables.
void use_environment(HostOrder& order,
                     const std::vector<std::pair<std::string, std::string>>& paths);

}  // namespace hora::launcher
