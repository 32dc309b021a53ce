// SPDX-License-Identifier: Apache-2.0
#include "collectives/runtime/bootstrap.h"

#include "collectives/backends/registry.h"
#include "collectives/runtime/elastic_world.h"
#include "collectives/runtime/launched_world.h"
#include "collectives/runtime/own_address.h"
#include "collectives/runtime/process_environment.h"
#include "rendezvous/contract/elastic_place.h"
#include "rendezvous/contract/store_keys.h"
#include "rendezvous/contract/worker_env.h"
#include "rendezvous/http_store.h"
#include "rendezvous/net/resolve.h"
#include "rendezvous/tls/tls_stream.h"

namespace hora::collectives {

namespace {

Result<std::string> address_by_route(const Settings& settings) {
  auto rendezvous = net::resolve_host(settings.rendezvous_address,
                                      static_cast<std::uint16_t>(settings.rendezvous_port));
  if (!rendezvous) return std::move(rendezvous).error().with_context("resolving the rendezvous");
  Error last = make_error(ErrorCode::kNotFound, "the rendezvous has no address");
  // A name may have addresses of families that this host has no route for.
  for (const Endpoint& each : *rendezvous) {
    auto own = own_address_towards(each);
    if (own) return own;
    last = std::move(own).error();
  }
  return last;
}

// Under another launcher such as mpirun, this also finds rank, size and rendezvous.
Result<std::string> find_own_address(Settings& settings) {
  // HOROVOD_SIZE without a rendezvous is an error of the environment, not another launcher.
  if (settings.rendezvous_address.empty() && !process_variable(rendezvous::env::kSize)) {
    const std::string launcher = find_other_launcher(process_variable);
    const auto world = find_started_world(process_variable);
    if (world || !launcher.empty()) return bootstrap_by_launcher(settings, launcher, world);
  }
  if (settings.size == 1) return std::string();
  return settings.interface.empty() ? address_by_route(settings)
                                    : address_of_interface(settings.interface);
}

// If the user asks for MPI by name, nothing may replace it silently.
Status check_cpu_operations(const Settings& settings) {
  if (settings.cpu_operations != "mpi" || settings.size == 1) return Ok{};
  const Result<const BackendDescriptor*> mpi = load_backend(*find_backend_row("mpi"));
  ErrorText why_not;
  ProbeContext context;
  context.world_size = settings.size;
  context.local_size = settings.local_size;
  if (mpi && (*mpi)->probe(context, why_not)) return Ok{};
  return make_error(ErrorCode::kUnavailable,
                    "HOROVOD_CPU_OPERATIONS=mpi, but MPI cannot be used: " +
                        (mpi ? std::string(why_not.text) : mpi.error().message));
}

}  // namespace

Result<Communicator::Start> start_from_environment(
    std::vector<std::vector<std::int32_t>> process_sets, int generation,
    const std::optional<CallersWorld>& callers) {
  Communicator::Start start;
  if (callers && in_elastic_job()) {
    return make_error(ErrorCode::kUsage,
                      "the world of an elastic job is the launcher's; init cannot choose another");
  }
  // The first world of an elastic worker is in its environment. Later ones come from the launcher,
  // which holds the request until the next epoch begins.
  if (generation > 0 && in_elastic_job()) {
    const auto stays = take_next_place();
    if (!stays) return stays.error();
    start.removed = !*stays;
    if (start.removed) return start;
  }
  auto settings = parse_settings(elastic_variable);
  if (!settings) return std::move(settings).error();
  start.settings = std::move(*settings);
  start.process_sets = std::move(process_sets);
  auto address =
      callers ? bootstrap_by_caller(start.settings, *callers) : find_own_address(start.settings);
  if (!address) return std::move(address).error();
  HORA_TRY(check_cpu_operations(start.settings));
  if (start.settings.size == 1) return start;
  start.address = std::move(*address);
  rendezvous::HttpStoreOptions options;
  options.host = start.settings.rendezvous_address;
  options.port = static_cast<std::uint16_t>(start.settings.rendezvous_port);
  options.token = start.settings.rendezvous_token;
  options.make_stream = tls::pinned(start.settings.rendezvous_tls);
  start.store = std::make_shared<rendezvous::HttpStore>(std::move(options));
  if (in_elastic_job()) {
    start.void_key = std::string(rendezvous::scope::kElasticPlace) + "/" +
                     rendezvous::void_key(start.settings.round);
  }
  start.meeting_key =
      // A world of the program's choice has a rendezvous for itself alone. Otherwise a new key for
      // each world: a worker must never find the address of a rank 0 that has ended.
      "hora_control/" + (start.settings.round.empty()
                             ? "start-" + std::to_string(callers ? 0 : generation)
                             : "round-" + start.settings.round);
  return start;
}

}  // namespace hora::collectives
