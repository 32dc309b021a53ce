// SPDX-License-Identifier: Apache-2.0
#include "collectives/runtime/launched_world.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <memory>
#include <sstream>
#include <vector>

#include "collectives/backends/registry.h"
#include "collectives/runtime/elastic_world.h"
#include "collectives/runtime/meeting_point.h"
#include "collectives/runtime/pmi_bootstrap.h"
#include "collectives/runtime/rank_location.h"
#include "rendezvous/base/time.h"
#include "rendezvous/contract/elastic_place.h"
#include "rendezvous/contract/store_keys.h"
#include "rendezvous/contract/worker_env.h"
#include "rendezvous/http_store.h"
#include "rendezvous/net/addresses.h"
#include "rendezvous/net/socket.h"
#include "rendezvous/os/random.h"
#include "rendezvous/serve.h"
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

// If the user asks for MPI or oneCCL by name, nothing may replace it silently.
Status check_cpu_operations(const Settings& settings) {
  const std::string& id = settings.cpu_operations;
  if ((id != "mpi" && id != "ccl") || settings.size == 1) return Ok{};
  const Result<const BackendDescriptor*> backend = load_backend(*find_backend_row(id));
  ErrorText why_not;
  ProbeContext context;
  context.world_size = settings.size;
  context.local_size = settings.local_size;
  if (backend && (*backend)->probe(context, why_not)) return Ok{};
  return make_error(
      ErrorCode::kUnavailable,
      "HOROVOD_CPU_OPERATIONS=" + id + ", but " + (id == "mpi" ? "MPI" : "oneCCL") +
          " cannot be used: " + (backend ? std::string(why_not.text) : backend.error().message));
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

// Joining a job that another launcher started (mpirun, srun, mpiexec, torchrun). There is no
// rendezvous, so rank 0 opens one and sends its addresses to the others through what the launcher
// offers: MPI, PMI, or variables from which all know a common address. All steps are collective, so
// a rank that fails takes part in the next exchange with its error instead of leaving the others
// waiting.

namespace {

// The text that one process sends to all others. A fixed size, as allgather requires.
struct Note {
  char text[4096] = {};
};

int number_of(const Variables& variables, std::string_view name) {
  const auto text = variables(name);
  int value = 0;
  if (text) std::from_chars(text->data(), text->data() + text->size(), value);
  return value;
}

bool is_mpi_wanted(const Variables& variables) {
  const auto controller = variables("HOROVOD_CONTROLLER");
  return controller && (*controller == "mpi" || *controller == "MPI");
}

// The bootstrap of one process through its launcher.
class BootstrapOverLauncher {
 public:
  BootstrapOverLauncher(const LauncherBootstrap& point, Settings& settings)
      : point_(point), settings_(settings) {}

  Result<std::string> run() {
    HORA_TRY(find_place());
    if (settings_.size == 1) return std::string();
    HORA_TRY(learn_rendezvous());
    std::string reached;
    auto own = reach(reached);
    // Every rank reports its result before any gives up; otherwise the others would wait for it.
    auto notes = exchange(own ? "ok " + reached : "error " + own.error().message);
    if (!notes) return std::move(notes).error();
    for (std::size_t rank = 0; rank < notes->size(); ++rank) {
      const std::string& note = (*notes)[rank];
      if (note.rfind("error ", 0) == 0) {
        return make_error(ErrorCode::kUnavailable,
                          "rank " + std::to_string(rank) +
                              " cannot reach rank 0: " + note.substr(std::strlen("error ")) +
                              "; HOROVOD_GLOO_IFACE names the interface to use");
      }
    }
    return settings_.rank == 0 ? address_that_serves(*notes) : *own;
  }

 private:
  Error failed(const ErrorText& text) { return make_error(ErrorCode::kUnavailable, text.text); }

  Status find_place() {
    LauncherPlace place;
    ErrorText error;
    if (!point_.place(&place, error)) return failed(error);
    settings_.rank = place.rank;
    settings_.size = place.size;
    settings_.local_rank = place.local_rank;
    settings_.local_size = place.local_size;
    settings_.cross_rank = place.cross_rank;
    settings_.cross_size = place.cross_size;
    return Ok{};
  }

  Result<std::vector<std::string>> exchange(const std::string& mine) {
    Note note;
    mine.copy(note.text, sizeof note.text - 1);
    std::vector<Note> all(static_cast<std::size_t>(settings_.size));
    ErrorText error;
    if (!point_.allgather(&note, sizeof note, all.data(), settings_.start_timeout.count(), error)) {
      return failed(error);
    }
    std::vector<std::string> texts;
    for (const Note& each : all) texts.emplace_back(each.text);
    return texts;
  }

  bool on_one_host() const { return settings_.local_size == settings_.size; }

  // The addresses of rank 0: of the chosen interface, or of every one that may lead to another
  // host.
  Result<std::vector<IpAddress>> own_addresses() const {
    // Loopback cannot be filtered, and is unreachable from outside of this host.
    if (on_one_host() && settings_.interface.empty())
      return std::vector{*parse_ip_address("127.0.0.1")};
    if (!settings_.interface.empty()) {
      auto address = address_of_interface(settings_.interface);
      if (!address) return std::move(address).error();
      return std::vector{*parse_ip_address(*address)};
    }
    auto interfaces = net::list_interfaces();
    if (!interfaces) return std::move(interfaces).error();
    std::vector<IpAddress> addresses;
    // Bridges of containers and virtual machines last: they are up on many hosts and lead nowhere.
    for (const bool bridges : {false, true}) {
      for (const net::Interface& each : *interfaces) {
        if (!each.up || each.loopback || each.address.is_link_local()) continue;
        if (each.virtual_bridge == bridges) addresses.push_back(each.address);
      }
    }
    if (addresses.empty()) {
      return make_error(ErrorCode::kNotFound,
                        "this host has no network interface that leads to other hosts");
    }
    return addresses;
  }

  Result<std::string> open_rendezvous() {
    // Lives until the process ends or the next bootstrap: other ranks may still be reading.
    static std::unique_ptr<rendezvous::HostedRendezvous> hosted;
    hosted.reset();
    auto addresses = own_addresses();
    if (!addresses) return std::move(addresses).error();
    const std::string token = os::random_token();
    auto started = rendezvous::HostedRendezvous::start(*addresses, token);
    if (!started) return std::move(started).error();
    hosted = std::move(*started);
    // The job id, the token and the addresses. They go through the launcher's own channel, which
    // has the user's rights.
    std::string text = "ok " + os::random_token() + " " + token;
    for (const Endpoint& each : hosted->endpoints()) text += " " + format_endpoint(each);
    return text;
  }

  Status learn_rendezvous() {
    std::string mine;
    if (settings_.rank == 0) {
      auto opened = open_rendezvous();
      // The other ranks wait in the same exchange, so an error has to be sent as well.
      mine = opened ? *opened : "error " + opened.error().message;
    }
    auto notes = exchange(mine);
    if (!notes) return std::move(notes).error();
    std::istringstream words(notes->front());
    std::string word;
    words >> word;
    if (word != "ok") return make_error(ErrorCode::kUnavailable, "rank 0: " + notes->front());
    words >> settings_.job_id >> settings_.rendezvous_token;
    while (words >> word) {
      auto endpoint = parse_endpoint(word);
      if (!endpoint) return std::move(endpoint).error();
      endpoints_.push_back(*endpoint);
    }
    return Ok{};
  }

  void use(const Endpoint& endpoint) {
    settings_.rendezvous_address = format_address(endpoint.address);
    settings_.rendezvous_port = endpoint.port;
  }

  // Finds the first of rank 0's addresses that answers, and this host's own address towards it.
  Result<std::string> reach(std::string& reached) {
    // Per address: an address of a network that this host is not on may swallow the attempt
    // silently.
    const Milliseconds timeout = std::min(settings_.start_timeout, Milliseconds(5'000));
    Error last = make_error(ErrorCode::kNotFound, "it has no address");
    for (const Endpoint& each : endpoints_) {
      const auto connected = net::connect_tcp(each, Clock::now() + timeout);
      if (!connected) {
        last = connected.error().with_context(format_endpoint(each));
        continue;
      }
      use(each);
      reached = format_address(each.address);
      if (!settings_.interface.empty()) return address_of_interface(settings_.interface);
      return own_address_towards(each);
    }
    return last;
  }

  // For rank 0 itself: the address by which most ranks have reached it.
  std::string address_that_serves(const std::vector<std::string>& notes) const {
    std::map<std::string, int> votes;
    for (std::size_t rank = 1; rank < notes.size(); ++rank) {
      // Rank 0 has reached itself over any address; the others know which one works.
      ++votes[notes[rank].substr(std::strlen("ok "))];
    }
    const auto most =
        std::max_element(votes.begin(), votes.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    return most->first;
  }

  const LauncherBootstrap& point_;
  Settings& settings_;
  std::vector<Endpoint> endpoints_;
};

}  // namespace

std::string find_other_launcher(const Variables& variables) {
  if (is_started_by_torchrun(variables)) return {};
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    // A world of one needs no launcher.
    if (number_of(variables, name) > 1) return name;
  }
  // PMIx itself does not say how many processes there are; Slurm and jsrun do.
  if (variables("PMIX_NAMESPACE") && (number_of(variables, "SLURM_STEP_NUM_TASKS") > 1 ||
                                      number_of(variables, "JSM_NAMESPACE_SIZE") > 1)) {
    return "PMIX_NAMESPACE";
  }
  if (is_mpi_wanted(variables)) return "HOROVOD_CONTROLLER";
  return {};
}

Result<std::string> bootstrap_by_launcher(Settings& settings, const std::string& launcher,
                                          const std::optional<StartedWorld>& world) {
  std::string why_not;
  if (!launcher.empty()) {
    const auto mpi = load_launcher_bootstrap(*find_backend_row("mpi"));
    ErrorText not_launched;
    if (mpi && (*mpi)->is_launched(not_launched))
      return BootstrapOverLauncher(**mpi, settings).run();
    // MPICH's launchers speak PMI-1, which needs no MPI library.
    ErrorText no_pmi;
    const LauncherBootstrap& pmi = pmi_launcher_bootstrap();
    if (pmi.is_launched(no_pmi)) return BootstrapOverLauncher(pmi, settings).run();
    why_not = mpi ? std::string(not_launched.text)
                  : "Hora's MPI module does not load: " + mpi.error().message;
  }
  // A user who asks for MPI by name must learn that it is missing.
  if (!world || is_mpi_wanted(process_variable)) {
    return make_error(ErrorCode::kUnavailable,
                      launcher + " says that an MPI launcher started this process, but " + why_not);
  }
  if (world->rank >= world->size) return make_error(ErrorCode::kUsage, world->described());
  if (!world->first_host.empty()) {
    return BootstrapOverLauncher(meeting_point(*world, settings), settings).run();
  }
  return make_error(
      ErrorCode::kUnavailable,
      world->described() + ", but nothing says where rank 0 is, so they cannot meet" +
          (why_not.empty() ? "" : " (" + why_not + ")") +
          ". Start the program with horarun, or set MASTER_ADDR to an address of rank 0's host; "
          "HOROVOD_SIZE=1 makes this process a world of its own");
}

Result<std::string> bootstrap_by_caller(Settings& settings, const CallersWorld& world) {
  if (world.rank < 0 || world.rank >= world.size || world.allgather == nullptr) {
    return make_error(ErrorCode::kUsage,
                      "hora_options: expected a rank below the size, and an "
                      "exchange among these processes");
  }
  // The agent knows this process by its place in the whole job.
  settings.recorder_slot = settings.local_rank;
  settings.worker = settings.rank;
  settings.rendezvous_tls.clear();
  return BootstrapOverLauncher(callers_exchange(world, settings.start_timeout), settings).run();
}

}  // namespace hora::collectives
