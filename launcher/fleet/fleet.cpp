// SPDX-License-Identifier: Apache-2.0
// A host goes from added to connecting (a link, no hello), greeted, and gone (the link is closed).
// Each ends by exactly one of AgentLeft, AgentLost and Failure, unless its user closes it first.
#include "launcher/fleet/fleet.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "launcher/failures/failure_code.h"
#include "launcher/failures/host_failure.h"
#include "launcher/machine/host_facts.h"
#include "launcher/network/host_addresses.h"
#include "launcher/process/process_table.h"
#include "launcher/text/text.h"
#include "rendezvous/base/text.h"
#include "rendezvous/base/time.h"
#include "rendezvous/os/log.h"

namespace hora::launcher {

namespace {

constexpr std::string_view kComponent = "horarun";
constexpr Milliseconds kLeaveTimeout{1'000};  // from an agent's goodbye to its end
// Between heartbeats: agents without an order know no lease.
constexpr Milliseconds kLongestPause{2'500};
constexpr std::size_t kMuchToSend = 1u << 20;  // when it is not needed any more

Milliseconds pause_between_beats(Milliseconds lease) {
  return std::min<Milliseconds>(lease / 4, kLongestPause);
}

std::string evidence_text(const HostLink& link, const Hello& hello, Clock::time_point now) {
  return describe(link.silence().evidence(now),
                  "its agent (process " + std::to_string(hello.pid) + ")") +
         "; its last message: " + std::string(link.last_words());
}

// Two short files of /proc at each heartbeat. To look only when one is missing would make the time
// that a process has been stopped a guess.
std::optional<Pulse> pulse_of_agent(bool is_remote, const Hello& hello) {
  if (is_remote) return std::nullopt;
  return pulse_of(static_cast<pid_t>(hello.pid));
}

// Once for each silence.
void warn(const std::string& host, HostLink& link, const Hello& hello, Clock::time_point now) {
  if (!link.silence().is_first_mention()) return;
  const bool is_stopped = link.silence().evidence(now).standing == Standing::kStopped;
  const std::string outlook =
      is_stopped
          ? "It is given up unless it goes on soon (kill -CONT " + std::to_string(hello.pid) + ")"
          : "The job goes on: this machine is very busy, or waits for a disk or for memory";
  os::log_warn(kComponent, host + ": " + evidence_text(link, hello, now) + ". " + outlook);
}

Sharing sharing_of(ShipVia via) {
  return via == ShipVia::kHosts      ? Sharing::kAlways
         : via == ShipVia::kLauncher ? Sharing::kNever
                                     : Sharing::kAuto;
}

// Each of them at most once.
bool are_offered(std::vector<std::string> missing, const std::vector<NeededPart>& parts) {
  for (const NeededPart& part : parts) {
    const auto found = std::find(missing.begin(), missing.end(), part.hash);
    if (found != missing.end()) missing.erase(found);
  }
  return missing.empty();
}

// The libraries that agents look for on their hosts, and where programs of the job will. The
// folders are not a secret: every process of a host may see them in the ranks' own programs.
void add_library_arguments(const JobSpec& spec, const Installation& installation,
                           std::vector<std::string>& arguments) {
  std::vector<std::string> sonames;
  for (const VendorNeed& need : installation.own().vendor_needs) {
    for (std::string& soname : libraries_of(need)) sonames.push_back(std::move(soname));
  }
  if (sonames.empty()) return;
  arguments.insert(arguments.end(), {"--find", join(sonames, ",")});
  if (spec.container) return;  // in an image there are other folders
  for (const auto& [option, folders] : {std::pair{"--library-path", &installation.library_path},
                                        std::pair{"--run-path", &installation.run_path},
                                        std::pair{"--program", &installation.program}}) {
    if (!folders->empty()) arguments.insert(arguments.end(), {option, *folders});
  }
}

AgentImage agent_image(const JobSpec& spec, const Installation& installation) {
  AgentImage image;
  const bool ships = spec.runtime == RuntimeKind::kHora;
  for (const Build& build : installation.builds) {
    // Hosts of that machine learn that there is none.
    if (!build.fault.empty()) continue;
    std::error_code unknown;  // AgentPayloads says why it cannot be read
    image.builds.push_back({build.machine, build.agent_path, build.agent_sha256,
                            ships ? part_list_text(build.needed_parts) : std::string(),
                            std::filesystem::file_size(build.agent_path, unknown)});
  }
  image.machines = installation.machines_text();
  if (ships) image.local_bundle = installation.own().bundle_directory;
  add_library_arguments(spec, installation, image.arguments);
  if (const auto& container = spec.container) {
    image.arguments.insert(image.arguments.end(), {"--container", container->image});
    for (const auto& [option, value] :
         {std::pair{"--container-runtime", container->runtime},
          std::pair{"--container-args", container->args},
          std::pair{"--wdir", spec.ship_files.empty() ? spec.working_directory : std::string()}}) {
      if (!value.empty()) image.arguments.insert(image.arguments.end(), {option, value});
    }
  }
  if (spec.manages_cache) image.arguments.push_back("--cleans-cache");
  // The agent has no limits of its own: what is removed is the launcher's to say, whose
  // configuration people know.
  if (const auto& age = spec.cache_limits.max_age) {
    image.arguments.insert(image.arguments.end(),
                           {"--cache-max-age", std::to_string(age->count())});
  }
  if (const auto& bytes = spec.cache_limits.max_bytes) {
    image.arguments.insert(image.arguments.end(), {"--cache-max-size", std::to_string(*bytes)});
  }
  return image;
}

// The output of a remote shell, or the name of a directory there, is shown on one short line.
StageObserver showing(StageObserver observer) {
  constexpr std::size_t kShown = 512;
  return [observer = std::move(observer)](int host, Stage stage, std::string_view detail) {
    observer(host, stage, visible_line(shortened(detail, kShown)));
  };
}

// For the message that it is on its way: unlike the runtime, it may be large enough for a user to
// wonder why it takes time.
void count_vendor_part(const Build& build, const std::string& hash, std::size_t bytes,
                       std::vector<Fleet::SentVendorPart>& all) {
  for (const VendorNeed& need : build.vendor_needs) {
    if (!need.part || need.part->hash != hash) continue;
    auto sent = std::find_if(all.begin(), all.end(),
                             [&need](const auto& each) { return each.name == need.name; });
    if (sent == all.end()) sent = all.insert(all.end(), {need.name, bytes, 0});
    ++sent->hosts;
  }
}

// Before anything is sent to it. Nothing has started yet, on no host, so a failure here is the
// whole message.
std::optional<Failure> look_at_libraries(const Hello& host, const std::string& name,
                                         const Build& build, bool is_remote) {
  for (const VendorNeed& need : build.vendor_needs) {
    if (auto why = why_unfit(need, host, is_remote)) return why;
    const std::string warning = unfit_warning(need, host, is_remote);
    if (!warning.empty()) os::log_warn(kComponent, name + ": " + warning);
  }
  return std::nullopt;
}

// The runtime's needs of the host's C library, and the job's of vendors' libraries.
std::optional<Failure> why_unfit_for_job(const Hello& host, const std::string& name,
                                         const Build& build, bool loads_runtime, bool is_remote) {
  if (loads_runtime && !build.needed_parts.empty()) {
    if (auto why = why_runtime_does_not_fit(host.c_library, build.least_glibc)) return why;
  }
  return look_at_libraries(host, name, build, is_remote);
}

}  // namespace

Fleet::Fleet(os::EventLoop& loop, const JobSpec& spec, const Installation& installation,
             Options options, Handler handler)
    : loop_(loop),
      spec_(spec),
      installation_(installation),
      options_(std::move(options)),
      handler_(std::move(handler)),
      image_(agent_image(spec, installation)),
      // Any thread calls this one.
      observer_(showing([this](int host, Stage stage, std::string_view detail) {
        loop_.post([this, host, stage, text = std::string(detail)] {
          // A host beyond the end is not needed after all.
          if (host < size()) handler_(host, StageReached{stage, text});
        });
      })),
      delivery_(loop, sharing_of(spec.ship_via), delivery_handlers()),
      trees_(loop, options_.ship_files, tree_handlers()) {}

// The links go before the transports that pump them.
Fleet::~Fleet() {
  members_.clear();
  local_.reset();
  remote_.reset();
}

// --- hosts ---------------------------------------------------------------------------------------

int Fleet::add(Host host, bool local) {
  Member& added = members_.emplace_back();
  added.host = std::move(host);
  added.local = local;
  return size() - 1;
}

std::optional<Failure> Fleet::connect(int host, Clock::time_point deadline) {
  Member& each = member(host);
  AgentImage image = image_;
  const bool is_alone = members_.size() == 1;
  if (options_.probes && !is_alone) image.arguments.push_back("--probe");
  one_cpu_.reset();
  if (each.local && is_alone) one_cpu_ = OneCpu::stay();
  image.one_cpu = one_cpu_.get();
  // A long job has no use for it: its processes wait for each other no more, and the scheduler
  // knows better.
  if (one_cpu_) loop_.call_after(OneCpu::kWhile, [this] { one_cpu_.reset(); });
  auto stream = transport_for(each).start(each.host, host, image, deadline);
  if (!stream) {
    const Error& error = stream.error();
    return Failure{std::string(each.local ? failure::kAgent : failure::kConnect), error.message,
                   failure::open_files_advice(error.errnum, "here")};
  }
  each.link = std::make_unique<HostLink>(
      loop_, std::move(*stream),
      HostLink::Handlers{[this, host](FleetEvent event) { on_agent_event(host, std::move(event)); },
                         [this, host](const std::string& what) {
                           forget(host);
                           handler_(host, Failure{std::string(failure::kProtocol),
                                                  "its agent broke the protocol: " + what, ""});
                         },
                         [this, host](std::string detail) { on_link_end(host, std::move(detail)); },
                         [this] { trees_.pack_more(); }});
  if (auto opened = each.link->open(); !opened) {
    return Failure{std::string(failure::kInternal), opened.error().message, ""};
  }
  return std::nullopt;
}

// A job has up to two transports: one for the hosts that are this machine, one for all others. Both
// come from the registry by name, so this file knows none of them.
Transport& Fleet::transport_for(const Member& host) {
  std::unique_ptr<Transport>& transport = host.local ? local_ : remote_;
  if (transport) return *transport;
  if (!host.local && options_.make_remote) {
    transport = options_.make_remote(observer_);
  } else {
    const TransportDescriptor& descriptor =
        host.local ? local_transport() : *find_transport(spec_.transport);
    transport = descriptor.create(spec_, observer_);
  }
  return *transport;
}

void Fleet::keep_first(int count) {
  for (int host = count; host < size(); ++host) {
    forget(host);
    trees_.lost(host);
  }
  members_.resize(static_cast<std::size_t>(count));
}

HostNetwork Fleet::network(int host) const {
  return host_network(name(host), *hello(host), is_remote(host));
}

// --- what they are sent --------------------------------------------------------------------------

void Fleet::send(int host, const HostOrder& order) {
  if (!member(host).link) return;
  // An agent prepares the ranks when it gets the order, and needs the runtime for that.
  if (has_all(host)) return member(host).link->send(order);
  member(host).order = order;
}

// An order may still wait for the runtime to be delivered; its start must not overtake it.
void Fleet::send_start(int host) {
  if (member(host).order) {
    member(host).starts_with_order = true;
  } else {
    send(host, StartRanks{});
  }
}

bool Fleet::has_all(int host) const {
  return trees_.is_complete(host) && delivery_.is_complete(host);
}

std::uint64_t Fleet::shipping() const {
  std::uint64_t moved = 1 + delivery_.fetched_bytes() + trees_.read_bytes();
  bool ships = false;
  for (int host = 0; host < size(); ++host) {
    if (!is_open(host)) continue;
    ships = ships || !has_all(host);
    moved += member(host).link->written_bytes();
  }
  return ships ? moved : 0;
}

void Fleet::ship(int host, const ShipFiles& files) {
  Member& each = member(host);
  if (!each.link) return;
  for (const auto& frames : files.frames()) {
    each.link->send_shared(frames);
    each.shipped_bytes += frames->size();
  }
}

// A job that ends before it has begun to connect has no members. Sending what is shipped may take
// minutes; a user who has asked for the end does not wait for it.
bool Fleet::close(int host, std::optional<std::chrono::milliseconds> grace, int signal) {
  if (host >= size() || !member(host).link) return true;
  const Member& each = member(host);
  if (grace && (each.link->has_sent_order() || each.link->queued_bytes() < kMuchToSend)) {
    send(host, TerminateRanks{*grace, signal});
    return false;
  }
  each.link->close();
  forget(host);
  return true;
}

// It neither gets nor gives anything any more.
void Fleet::forget(int host) { delivery_.lost(host); }

// --- what they say -------------------------------------------------------------------------------

void Fleet::on_agent_event(int host, FleetEvent event) {
  if (auto* hello = std::get_if<Hello>(&event)) return on_hello(host, std::move(*hello));
  if (auto* report = std::get_if<DeliveryReport>(&event)) return delivery_.on_report(host, *report);
  if (auto* state = std::get_if<TreeState>(&event)) return on_tree_state(host, *state);
  if (auto* goodbye = std::get_if<Goodbye>(&event)) return on_goodbye(host, std::move(*goodbye));
  if (auto* exit = std::get_if<RankExit>(&event)) {
    // Nothing is received before it happens, however late the hello came.
    exit->clock_ns = std::max<std::int64_t>(exit->clock_ns, 0);  // a host may say anything
    auto& offset = member(host).clock_offset;
    offset = std::min(offset, std::chrono::nanoseconds(wall_clock_ns() - exit->clock_ns));
  }
  handler_(host, std::move(event));
}

// The agent itself is gone when its stream ends, and not before that is the host left as it was
// found.
void Fleet::on_goodbye(int host, Goodbye goodbye) {
  if (goodbye.stays) member(host).link->send_last(LeaveHost{});
  member(host).goodbye = std::move(goodbye);
  loop_.call_after(kLeaveTimeout, [this, host] {
    if (host < size() && is_open(host)) on_link_end(host, {});
  });
}

void Fleet::on_hello(int host, Hello hello) {
  Member& each = member(host);
  each.clock_offset =
      std::chrono::nanoseconds(wall_clock_ns() - std::max<std::int64_t>(hello.clock_ns, 0));
  each.hello = std::move(hello);
  const Build* build = installation_.find(each.hello->machine);
  if (build == nullptr) {
    return handler_(host, no_build_for(each.hello->machine, installation_.machines_text()));
  }
  const bool loads = options_.loads_runtime && spec_.runtime == RuntimeKind::kHora;
  if (auto why = why_unfit_for_job(*each.hello, name(host), *build, loads, is_remote(host))) {
    return handler_(host, std::move(*why));
  }
  const std::vector<std::string>& missing = each.hello->missing_parts;
  if (!are_offered(missing, build->needed_parts)) {
    return handler_(host, Failure{std::string(failure::kProtocol),
                                  "its agent broke the protocol: hello: it misses parts of the "
                                  "runtime that the job does not need",
                                  ""});
  }
  auto frames = frames_of(*build, missing);
  if (!frames) return handler_(host, RuntimeMissing{std::move(frames).error()});
  if (const ShipFiles* files = options_.ship_files; files != nullptr && files->has_parts()) {
    if (const auto& environment = files->environment()) {
      if (auto why = why_unfit(*environment, *each.hello)) return handler_(host, std::move(*why));
    }
    each.link->send(trees_.offer(host));
  }
  if (frames->empty()) {
    delivery_.greeted();
  } else {
    delivery_.want(host, *frames, size());
  }
  handler_(host, AgentGreeted{!missing.empty()});
}

void Fleet::on_tree_state(int host, const TreeState& state) {
  if (const std::size_t count = state.missing.size(); count > 0) {
    const std::string parts = counted(count, "part");
    handler_(host, StageReached{Stage::kShip, parts + " of " + options_.ship_files->options()});
  }
  trees_.on_state(host, state);
  if (has_all(host)) on_supplied(host, {});
  // Data that others keep for this host may not be needed.
  delivery_.greeted();
}

std::vector<std::pair<std::string, std::string>> Fleet::vendor_paths(int host) const {
  std::vector<std::pair<std::string, std::string>> paths;
  const Build* build = installation_.find(hello(host)->machine);
  // This machine uses its own where they are.
  if (build == nullptr || !is_remote(host)) return paths;
  for (const VendorNeed& need : build->vendor_needs) {
    if (!uses_sent(need, *hello(host))) continue;
    paths.insert(paths.end(), need.part->paths.begin(), need.part->paths.end());
  }
  return paths;
}

// Packed for the first host that lacks it. The others get the same bytes.
Result<PartDelivery::Frames> Fleet::frames_of(const Build& build,
                                              const std::vector<std::string>& parts) {
  PartDelivery::Frames found;
  for (const std::string& hash : parts) {
    auto& frames = part_frames_[hash];
    if (!frames) {
      auto made = part_frames(build, hash);
      if (!made) return std::move(made).error();
      frames = std::move(*made);
    }
    found.emplace(hash, frames);
    count_vendor_part(build, hash, frames->size(), sent_vendor_parts_);
  }
  return found;
}

PartDelivery::Handlers Fleet::delivery_handlers() {
  PartDelivery::Handlers handlers;
  handlers.send = [this](int host, std::shared_ptr<const std::string> frames) {
    member(host).shipped_bytes += frames->size();
    member(host).link->send_shared(std::move(frames));
  };
  handlers.keep = [this](int host, const KeepDelivery& keep) { member(host).link->send(keep); };
  handlers.fetch = [this](int host, const FetchDelivery& fetch) { member(host).link->send(fetch); };
  handlers.forget = [this](int host, const std::string& id) { send(host, ForgetDeliveries{id}); };
  // Not within the call that has settled something.
  handlers.on_settled = [this] { loop_.post([this] { trees_.pack_more(); }); };
  handlers.find_source = [this](int source, int host) {
    return DeliverySource{name(source),
                          addresses_for(network(host), network(source), spec_.network_interfaces)};
  };
  handlers.on_complete = [this](int host, const Supply& supply) { on_supplied(host, supply); };
  // While a host is still connecting, the others keep what it may lack.
  handlers.more_may_come = [this] {
    for (int host = 0; host < size(); ++host) {
      if (is_open(host) && (!hello(host) || trees_.awaits_answer(host))) return true;
    }
    return false;
  };
  handlers.name = [this](int host) -> const std::string& { return name(host); };
  return handlers;
}

TreeDelivery::Handlers Fleet::tree_handlers() {
  TreeDelivery::Handlers handlers;
  handlers.deliver = [this](int host, const std::string& hash, PartPacker::Frames frames) {
    if (is_open(host)) delivery_.want(host, {{hash, std::move(frames)}}, size());
  };
  handlers.on_unreadable = [this](int host, Error error) {
    error = std::move(error).with_context("packing " + options_.ship_files->options());
    handler_(host, RuntimeMissing{std::move(error)});
  };
  // In the queues of links, which share frames, or waiting for hosts to pass them on.
  handlers.bytes_under_way = [this] {
    std::size_t queued = 0;
    for (const Member& each : members_) {
      if (each.link) queued = std::max(queued, each.link->queued_bytes());
    }
    return delivery_.unsettled_bytes() + queued;
  };
  return handlers;
}

void Fleet::on_supplied(int host, const Supply& supply) {
  Member& each = member(host);
  each.supply.sent_bytes += supply.sent_bytes;
  each.supply.fetched_bytes += supply.fetched_bytes;
  for (const std::string& source : supply.sources) {
    auto& known = each.supply.sources;
    if (std::find(known.begin(), known.end(), source) == known.end()) known.push_back(source);
  }
  if (!has_all(host)) return;
  if (each.order) {
    each.link->send(*std::exchange(each.order, std::nullopt));
    if (each.starts_with_order) each.link->send(StartRanks{});
  }
  const Supply all = std::exchange(each.supply, {});
  if (all.sent_bytes + all.fetched_bytes == 0) return;
  // Not at once: this may be within a call of our user.
  loop_.post([this, host, all] {
    if (host < size()) handler_(host, RuntimeSupplied{all});
  });
}

void Fleet::on_link_end(int host, std::string detail) {
  Member& each = member(host);
  forget(host);
  if (each.goodbye) {
    if (!std::exchange(each.left, true)) handler_(host, AgentLeft{*each.goodbye});
    return;
  }
  if (!each.hello) {
    return handler_(host, Failure{std::string(failure::kAgent), std::move(detail), ""});
  }
  handler_(host, AgentLost{std::move(detail), each.link->silence().last_received()});
}

// --- signs of life -------------------------------------------------------------------------------

void Fleet::begin_heartbeats() {
  next_beat_ = Clock::now();
  beat();
}

void Fleet::beat() {
  const auto now = loop_.polled_at();  // we may have been stopped ourselves, or busy
  const Milliseconds pause = pause_between_beats(options_.lease);
  for (int host = 0; host < size(); ++host) {
    if (!member(host).hello || !is_open(host)) continue;
    HostLink& link = *member(host).link;
    link.silence().look(next_beat_, now, pause, pulse_of_agent(is_remote(host), *hello(host)));
    const Verdict verdict = judge(link.silence().evidence(now), options_.lease);
    if (verdict != Verdict::kLost) {
      if (verdict == Verdict::kSlow) warn(name(host), link, *hello(host), now);
      link.send(Heartbeat{});
      continue;
    }
    link.read_now();  // what has come since the loop looked
    if (host >= size() || !is_open(host) || link.silence().length(now) <= options_.lease) continue;
    AgentLost lost{evidence_text(link, *hello(host), now), link.silence().last_received()};
    link.close();
    forget(host);
    handler_(host, std::move(lost));
  }
  next_beat_ = Clock::now() + pause;
  loop_.call_at(next_beat_, [this] { beat(); });
}

bool Fleet::has_slow_host() const {
  const auto now = loop_.polled_at();
  for (int host = 0; host < size(); ++host) {
    const Member& each = member(host);
    if (!each.hello || !is_open(host)) continue;
    if (each.link->silence().length(now) <= pause_between_beats(options_.lease)) continue;
    const auto agent = pulse_of_agent(is_remote(host), *each.hello);
    if (agent && agent->standing == Standing::kAtWork) return true;
  }
  return false;
}

void Fleet::forgive_silence() {
  for (Member& each : members_) {
    if (each.hello && each.link->is_open()) each.link->silence().received(Clock::now());
  }
}

std::vector<std::optional<Hello>> hellos_of(const Fleet& fleet) {
  std::vector<std::optional<Hello>> hellos;
  for (int host = 0; host < fleet.size(); ++host) hellos.push_back(fleet.hello(host));
  return hellos;
}

}  // namespace hora::launcher
