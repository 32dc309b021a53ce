// SPDX-License-Identifier: Apache-2.0
// Turns the plan into one order per host. Everything in it is final except "@bundle@", which the
// agent replaces.
#include "launcher/job/orders.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <iterator>
#include <map>
#include <utility>

#include "launcher/plan/binding.h"
#include "launcher/plan/plan.h"
#include "rendezvous/base/address.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

namespace env = rendezvous::env;

StdinSource stdin_source(const JobSpec& spec, int rank) {
  if (spec.pty && rank == 0) return StdinSource::kTerminal;
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
  place.exact_interfaces = own.is_prefix;
  place.master_address = first.address;
  place.master_port = identity.master_port;
  place.controller = "gloo";
  place.cpu_operations = cpu_operations_of(spec);
  place.elastic = spec.elastic.has_value();
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

// The common settings of the ranks of one host.
class CommonEnvironment {
 public:
  CommonEnvironment(const JobSpec& spec, const EnvironmentList& launcher_environment,
                    bool same_machine, rendezvous::RendezvousAddress place)
      : spec_(spec),
        launcher_environment_(launcher_environment),
        same_machine_(same_machine),
        place_(std::move(place)),
        of_all_(with(spec.variables)) {}

  const EnvironmentList& of_all() const { return of_all_; }

  // What -x changes for the rank's program, one of several: the difference from what a job of this
  // program alone would have, so that -x means the same in both.
  const EnvironmentList& of_program(int rank) {
    const std::size_t index = spec_.programs.empty() ? 0 : program_of_rank(spec_.programs, rank);
    const auto [known, is_new] = of_programs_.try_emplace(index);
    if (is_new && !spec_.programs.empty()) {
      EnvironmentList own = with(spec_.programs[index].variables);
      std::copy_if(own.begin(), own.end(), std::back_inserter(known->second),
                   [this](const auto& variable) {
                     return std::find(of_all_.begin(), of_all_.end(), variable) == of_all_.end();
                   });
    }
    return known->second;
  }

 private:
  EnvironmentList with(const std::vector<EnvironmentVariable>& variables) const {
    auto forwarded = forwarded_environment(launcher_environment_, spec_, same_machine_, variables);
    const auto placed = host_variables(place_, forwarded);
    return with_variables(std::move(forwarded), placed);
  }

  const JobSpec& spec_;
  const EnvironmentList& launcher_environment_;
  bool same_machine_;
  rendezvous::RendezvousAddress place_;
  EnvironmentList of_all_;
  std::map<std::size_t, EnvironmentList> of_programs_;  // those with ranks on this host
};

// The ranks of a host share what --include and --exclude leave of its GPUs.
EnvironmentList device_variables(const Host& host) {
  if (host.gpus.empty()) return {};
  std::vector<std::string> numbers;
  for (const int gpu : host.gpus) numbers.push_back(std::to_string(gpu));
  return {{"CUDA_VISIBLE_DEVICES", join(numbers, ",")}};
}

// A rank that a rankfile gives no cores is not bound, whatever the others of its host have.
std::string binding_of(const JobSpec& spec, const HostPlan& host) {
  if (spec.seats.empty()) return spec.bind;
  const bool has_cores = std::any_of(host.slots.begin(), host.slots.end(),
                                     [](const Slot& slot) { return !slot.cores.empty(); });
  if (!has_cores) return "none";
  // As text, by local rank: only the host knows its sockets, and which CPUs its container has.
  std::vector<std::string> cores;
  for (const Slot& slot : host.slots) cores.push_back(slot.cores);
  return std::string(kCoresMode) + join(cores, " ");
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

// Neither the launcher's nor the host's own.
void remove_variable(HostOrder& order, const std::string& name) {
  const auto is_it = [&name](const auto& variable) { return variable.first == name; };
  std::erase_if(order.environment, is_it);
  for (RankOrder& rank : order.ranks) std::erase_if(rank.environment, is_it);
  if (!order.own_variables.empty()) order.own_variables.push_back("!" + name);
}

}  // namespace

HostOrder make_order(const JobSpec& spec, const Plan& plan, std::size_t host,
                     const std::vector<HostRoute>& routes, bool same_machine,
                     const JobIdentity& identity, const EnvironmentList& launcher_environment) {
  const HostPlan& own = plan.hosts[host];
  HostOrder order;
  order.job_id = identity.job_id;
  order.working_directory = spec.working_directory;
  order.ship_directory = !spec.ship_files.empty();
  order.argv = spec.command;
  order.more_programs = more_programs(spec);
  CommonEnvironment environment(spec, launcher_environment, same_machine,
                                rendezvous_address(spec, routes[host], routes[0], identity));
  order.environment = with_variables(environment.of_all(), device_variables(own.host));
  // Only remote hosts and images have an environment of their own to inherit; here it is the
  // forwarded one already.
  if (!same_machine || spec.container) order.own_variables = own_variables_of_remote();
  if (spec.runtime == RuntimeKind::kHora) {
    order.prepend_paths = {{"PATH", "@bundle@/bin"},
                           {"LD_LIBRARY_PATH", "@bundle@/lib"},
                           {"PYTHONPATH", "@bundle@/python"}};
  }
  for (const Slot& slot : own.slots) {
    order.ranks.push_back(
        {slot.rank, slot.local_rank,
         with_variables(environment.of_program(slot.rank), rank_variables(plan, own, slot)),
         stdin_source(spec, slot.rank)});
    if (!spec.pty || slot.rank != 0) continue;
    order.ranks.back().rows = spec.pty->rows;
    order.ranks.back().columns = spec.pty->columns;
  }
  order.grace_ms = spec.grace.count();
  order.lease_ms = spec.lease.count();
  order.bind = binding_of(spec, own);
  order.gpus_per_rank = spec.gpus_per_rank;
  // Several ranks share a host: each library would otherwise start a thread per core for each
  // rank.
  order.limit_threads = true;
  if (!spec.pmi.empty()) {
    order.pmi = spec.pmi;
    order.pmi_hosts = pmi_hosts(plan);
    order.pmi_host = static_cast<int>(host);
  }
  return order;
}

std::vector<HostOrder> make_orders(const JobSpec& spec, const Plan& plan,
                                   const std::vector<HostRoute>& routes,
                                   const std::vector<bool>& same_machine,
                                   const JobIdentity& identity,
                                   const EnvironmentList& launcher_environment) {
  std::vector<HostOrder> orders;
  for (std::size_t host = 0; host < plan.hosts.size(); ++host) {
    orders.push_back(
        make_order(spec, plan, host, routes, same_machine[host], identity, launcher_environment));
  }
  return orders;
}

HostOrder make_place_order(const Plan& plan, std::size_t host, const std::vector<HostRoute>& routes,
                           const JobIdentity& identity) {
  HostOrder order = make_order(JobSpec{}, plan, host, routes, /*same_machine=*/true, identity, {});
  order.prepend_paths.clear();
  return order;
}

namespace {

// The values of an order without a command.
class PlaceReader {
 public:
  explicit PlaceReader(const EnvironmentList& variables) : variables_(variables) {}

  // Its letters mean nothing to a loader, a shell or a file system.
  std::string word(std::string_view name) {
    std::string text = value_in(variables_, name).value_or("");
    const bool is_word =
        text.size() <= kMostName && std::all_of(text.begin(), text.end(), [](unsigned char c) {
          return (c < 0x80 && std::isalnum(c) != 0) ||
                 std::string_view(".,:_@=-").find(static_cast<char>(c)) != std::string_view::npos;
        });
    if (!is_word) refuse(name);
    return text;
  }
  std::string address(std::string_view name) {
    std::string text = word(name);
    if (!parse_ip_address(text)) refuse(name);
    return text;
  }
  int number(std::string_view name, int least, int most) {
    const int value = parse_int<int>(word(name)).value_or(least - 1);
    if (value < least || value > most) refuse(name);
    return value;
  }
  Status status() const {
    if (fault_.empty()) return Ok{};
    return make_error(ErrorCode::kFailed, "the order's " + fault_ + " cannot be used");
  }

 private:
  void refuse(std::string_view name) { fault_ = name; }

  const EnvironmentList& variables_;
  std::string fault_;
};

Result<Slot> read_slot(const RankOrder& order, std::size_t local_rank, int world_size) {
  PlaceReader reader(order.environment);
  Slot slot;
  slot.rank = reader.number(env::kRank, 0, world_size - 1);
  slot.local_rank = static_cast<int>(local_rank);
  slot.cross_size = reader.number(env::kCrossSize, 1, kMaxHosts);
  slot.cross_rank = reader.number(env::kCrossRank, 0, slot.cross_size - 1);
  HORA_TRY(reader.status());
  if (order.rank == slot.rank && order.local_rank == slot.local_rank) return slot;
  return make_error(ErrorCode::kFailed, "the order contradicts itself about its ranks");
}

}  // namespace

Result<OrderedPlace> read_place_order(const HostOrder& order, const Host& first, const Host& own,
                                      int slots) {
  if (order.ranks.empty() || order.ranks.size() > static_cast<std::size_t>(slots)) {
    return make_error(ErrorCode::kFailed, "it has " + counted(order.ranks.size(), "rank") +
                                              " for this node, whose own command has " +
                                              counted(static_cast<std::uint64_t>(slots), "slot"));
  }
  PlaceReader reader(order.environment);
  PlaceReader of_rank(order.ranks.front().environment);
  OrderedPlace place;
  place.identity.job_id = reader.word(env::kJobId);
  place.identity.token = reader.word(env::kRendezvousToken);
  place.identity.tls_fingerprint = reader.word(env::kRendezvousTls);
  place.identity.rendezvous_port = reader.number(env::kRendezvousPort, 1, kLargestPort);
  place.identity.master_port = reader.number(env::kMasterPort, 0, kLargestPort);
  HostRoute head;
  head.address = reader.address(env::kMasterAddress);
  HostRoute route;
  route.rendezvous_address = reader.address(env::kRendezvousAddress);
  const std::string interfaces = reader.word(env::kNcclInterfaces);
  route.is_prefix = interfaces.starts_with('=');
  for (const auto name : split(std::string_view(interfaces).substr(route.is_prefix ? 1 : 0), ',')) {
    if (!name.empty()) route.interfaces.emplace_back(name);
  }
  place.plan.world_size = of_rank.number(env::kSize, 1, kMaxRanks);
  const int index = of_rank.number(env::kTorchGroupRank, 0, kMaxHosts);
  HORA_TRY(reader.status());
  HORA_TRY(of_rank.status());
  place.plan.hosts = {{first, 0, {}}, {own, index, {}}};
  for (const RankOrder& rank : order.ranks) {
    std::vector<Slot>& known = place.plan.hosts[1].slots;
    auto slot = read_slot(rank, known.size(), place.plan.world_size);
    if (!slot) return std::move(slot).error();
    known.push_back(*std::move(slot));
  }
  place.routes = {std::move(head), std::move(route)};
  return place;
}

// After the runtime's own folder and before the user's. What is sent is used as a whole: if the
// user's folder had the same libraries, the host would have been found to have them.
void use_vendor_paths(HostOrder& order,
                      const std::vector<std::pair<std::string, std::string>>& paths) {
  for (const auto& path : paths) {
    order.prepend_paths.push_back(path);
    // Another installation's folder, of the launcher or of the host, would be a second value.
    if (path.first != "LD_LIBRARY_PATH") remove_variable(order, path.first);
  }
}

// Before the runtime's folders as well: "python" is that of the environment.
void use_environment(HostOrder& order,
                     const std::vector<std::pair<std::string, std::string>>& paths) {
  // Of another environment, which may be active here or there.
  for (const char* name : {"PYTHONHOME", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV"}) {
    remove_variable(order, name);
  }
  for (const auto& [name, value] : paths) {
    if (name != "PATH" && name != "LD_LIBRARY_PATH") remove_variable(order, name);
  }
  order.prepend_paths.insert(order.prepend_paths.begin(), paths.begin(), paths.end());
}

}  // namespace hora::launcher
