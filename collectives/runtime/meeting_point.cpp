// SPDX-License-Identifier: Apache-2.0
#include "collectives/runtime/meeting_point.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/control/oob_allgather.h"
#include "collectives/control/tcp_channel.h"
#include "collectives/control/tree_frames.h"
#include "collectives/runtime/callers_exchange.h"
#include "collectives/runtime/elastic_world.h"
#include "collectives/runtime/rank_location.h"
#include "rendezvous/base/address.h"
#include "rendezvous/base/text.h"
#include "rendezvous/contract/elastic_place.h"
#include "rendezvous/contract/store_keys.h"
#include "rendezvous/http_store.h"
#include "rendezvous/net/addresses.h"
#include "rendezvous/net/socket.h"
#include "rendezvous/os/random.h"
#include "rendezvous/serve.h"

namespace hora::collectives {

namespace {

// For one request to the store. The waiting ranks have come to an end by then, or go on waiting.
constexpr std::chrono::seconds kAskTimeout{2};
// Named in a message for people; a large job may miss thousands.
constexpr std::size_t kMostNamed = 16;

Deadline soon() { return Clock::now() + kAskTimeout; }

std::string this_process() {
  return "process " + std::to_string(::getpid()) + " on " + net::host_name();
}

std::string list(std::vector<int> ranks) {
  const bool all = ranks.size() <= kMostNamed;
  if (!all) ranks.resize(kMostNamed);
  std::vector<std::string> names;
  for (const int rank : ranks) names.push_back(std::to_string(rank));
  return join(names, ", ") + (all ? "" : ", ...");
}

}  // namespace

// Names with a slash would be places of the store.
Attendance::Attendance(rendezvous::Store& store, const std::string& meeting_key, int rank, int size)
    : store_(store),
      place_(meeting_key + "-came"),
      reported_key_(meeting_key + "-missing"),
      rank_(rank),
      size_(size) {
  std::replace(place_.begin(), place_.end(), '/', '-');
}

Status Attendance::leave_note() {
  if (noted_) return Ok{};
  noted_ = true;
  const std::string rank = std::to_string(rank_);
  static_cast<void>(store_.set(place_ + "/" + rank, "here", soon()));
  // Written before it is read: of two processes, one sees both.
  const std::string own = os::random_token();
  const std::string processes = place_ + "-" + rank;
  static_cast<void>(store_.set(processes + "/" + own, this_process(), soon()));
  const auto there = store_.gather(processes, 0, soon());
  if (!there) return Ok{};
  for (const auto& [name, process] : *there) {
    if (name != own) return give_up_twice(process);
  }
  return Ok{};
}

Error Attendance::give_up_twice(const std::string& other) {
  const std::string rank = "rank " + std::to_string(rank_);
  Error error =
      make_error(ErrorCode::kUsage, this_process() + " and " + other + " are both " + rank +
                                        " (HOROVOD_RANK must differ in every process)");
  static_cast<void>(store_.set(reported_key_, error.message, soon()));
  return error;
}

Error Attendance::give_up(const std::vector<int>& unseen) {
  Error error = describe(unseen);
  static_cast<void>(store_.set(reported_key_, error.message, soon()));
  return error;
}

// Others that waited for the same rank as long may be doing this at the same time. They find out
// the same, so it does not matter whose text stays.
Error Attendance::give_up() {
  if (auto error = abandoned_reason()) return *error;
  std::vector<int> others(static_cast<std::size_t>(size_));
  std::iota(others.begin(), others.end(), 0);
  others.erase(others.begin() + rank_);
  return give_up(others);
}

std::optional<Error> Attendance::abandoned_reason() {
  const auto text = store_.get(reported_key_, soon());
  if (!text || !text->has_value()) return std::nullopt;
  return make_error(ErrorCode::kTimedOut, **text);
}

Error Attendance::describe(const std::vector<int>& unseen) const {
  std::vector<int> missing = unseen;
  if (const auto notes = store_.gather(place_, 0, soon())) {
    std::set<std::string, std::less<>> came;
    for (const auto& [name, note] : *notes) came.insert(name);
    std::erase_if(missing, [&](int rank) { return came.count(std::to_string(rank)) > 0; });
  }
  // All of them run. Something is between them and rank 0, a firewall perhaps.
  const bool cut_off = missing.empty();
  const std::vector<int>& named = cut_off ? unseen : missing;
  std::string text = std::string("timed out waiting for ") +
                     (named.size() == 1 ? "rank " : "ranks ") + list(named) +
                     (cut_off ? (named.size() == 1 ? " to connect, which has called init()"
                                                   : " to connect, which have called init()")
                              : " to start") +
                     " (HOROVOD_GLOO_TIMEOUT_SECONDS sets the limit)";
  const std::string key =
      std::string(rendezvous::scope::kControl) + "/" + std::string(rendezvous::kRankHostsKey);
  // Only a launcher that started the ranks knows the hosts of the missing ones.
  if (const auto hosts = store_.get(key, soon()); hosts && hosts->has_value()) {
    const std::vector<int> first(
        named.begin(),
        named.begin() + static_cast<std::ptrdiff_t>(std::min(named.size(), kMostNamed)));
    const std::string where = rendezvous::name_hosts_of(**hosts, first);
    if (!where.empty()) text += ": " + where;
  }
  return make_error(ErrorCode::kTimedOut, text);
}

// Rank 0 listens on the first of a few ports that is free. The others try all of them in turn until
// one answers to the token of this world: another world may have taken one, or another program.

namespace {

// One attempt at one port. A host that is up answers at once or refuses.
constexpr std::chrono::milliseconds kOneAttempt{2'000};
constexpr std::chrono::milliseconds kBetweenRounds{100};
// How long rank 0 goes on serving for ranks that have not yet learned that others are missing.
constexpr std::chrono::seconds kFarewell{5};
// The entry of rank 0 for a missing rank. No note of a rank is like it.
constexpr std::string_view kMissing = "\x01has not called init";

class MeetingPoint final : public TextAllgather {
 public:
  MeetingPoint(StartedWorld world, const Settings& settings)
      : world_(std::move(world)),
        token_(settings.rendezvous_token.empty() ? meeting_token(world_)
                                                 : settings.rendezvous_token),
        timeout_(settings.start_timeout) {}

  int rank() const override { return world_.rank; }
  std::chrono::milliseconds timeout() const { return timeout_; }

  Result<std::vector<std::string>> allgather(std::string_view mine, Deadline deadline) override {
    if (!store_) HORA_TRY(arrive(deadline));
    // A key of its own for every exchange: a fast rank may be in the next one already.
    const std::string place = "hora_meeting_" + std::to_string(rounds_++);
    const auto size = static_cast<std::size_t>(world_.size);
    HORA_TRY(store_->set(place + "/" + std::to_string(world_.rank), mine, deadline));
    // Rank 0 serves, so it gives up first, and writes that into the entries of the missing ranks.
    if (world_.rank > 0) deadline = std::max(deadline, Clock::now() + timeout_) + kRankZeroFirst;
    auto all = store_->gather(place, size, deadline);
    if (!all && world_.rank == 0 && all.error().code == ErrorCode::kTimedOut) {
      HORA_TRY(mark_missing(place));
      all = store_->gather(place, size, Clock::now() + kOneAttempt);
    }
    if (!all) return all.error();
    std::vector<std::string> values(size);
    std::vector<std::string> missing;
    for (auto& [name, value] : *all) {
      const auto rank = static_cast<std::size_t>(std::atoi(name.c_str()));
      if (value == kMissing) missing.push_back(name);
      if (rank < size) values[rank] = std::move(value);
    }
    if (missing.empty()) return values;
    return give_up(place, std::move(missing));
  }

 private:
  Status arrive(Deadline deadline) { return world_.rank == 0 ? open() : reach(deadline); }

  // Serves for as long as the process lives: a rank that comes late, or initialises again, finds
  // it.
  Status open() {
    Error last = make_error(ErrorCode::kFailed, "there is no port to listen on");
    const bool on_one_host = world_.first_host == "127.0.0.1";
    for (const std::uint16_t port : meeting_ports(world_)) {
      // "::" takes IPv4 as well, where the kernel knows IPv6.
      for (const char* address : {on_one_host ? "127.0.0.1" : "::", "0.0.0.0"}) {
        auto opened = rendezvous::HostedRendezvous::start(
            std::vector<Endpoint>{{*parse_ip_address(address), port}}, token_);
        if (opened) {
          hosted_ = std::move(*opened);
          store_ = store("127.0.0.1", port);
          return Ok{};
        }
        last = std::move(opened).error();
        if (on_one_host) break;
      }
    }
    return last.with_context(world_.described() + ", which serves the others");
  }

  Status reach(Deadline deadline) {
    Error last = make_error(ErrorCode::kTimedOut, "no answer");
    do {
      for (const std::uint16_t port : meeting_ports(world_)) {
        auto candidate = store(world_.first_host, port);
        // The question is only whether it is the right one.
        const auto there =
            candidate->get("hora_meeting/here", std::min(deadline, Clock::now() + kOneAttempt));
        if (there) {
          store_ = std::move(candidate);
          return Ok{};
        }
        last = there.error();
      }
      std::this_thread::sleep_for(kBetweenRounds);
    } while (Clock::now() < deadline);
    return make_error(
        ErrorCode::kTimedOut,
        world_.described() + ", but rank 0 cannot be reached at " + world_.first_host + ": " +
            last.message +
            ". Has it called init, too? Otherwise start the program with horarun, or set "
            "MASTER_ADDR "
            "to an address of its host; HOROVOD_SIZE=1 makes this process a world of its own");
  }

  std::unique_ptr<rendezvous::HttpStore> store(const std::string& host, std::uint16_t port) const {
    rendezvous::HttpStoreOptions options;
    options.host = host;
    options.port = port;
    options.token = token_;
    options.timeout = std::chrono::milliseconds(0);
    return std::make_unique<rendezvous::HttpStore>(std::move(options));
  }

  // Their own entries may still come, but are not awaited any more.
  Status mark_missing(const std::string& place) {
    const auto there = store_->gather(place, 0, Clock::now() + kOneAttempt);
    if (!there) return there.error();
    std::vector<bool> came(static_cast<std::size_t>(world_.size));
    for (const auto& [name, value] : *there) {
      const auto rank = static_cast<std::size_t>(std::atoi(name.c_str()));
      if (rank < came.size()) came[rank] = true;
    }
    rendezvous::KvEntries marks;
    for (std::size_t rank = 0; rank < came.size(); ++rank) {
      if (!came[rank]) marks.push_back({std::to_string(rank), std::string(kMissing)});
    }
    return store_->set_all(place, marks, Clock::now() + kOneAttempt);
  }

  // Rank 0's process may end with this error, and the server with it.
  Error give_up(const std::string& place, std::vector<std::string> missing) {
    const std::string received = place + "_received";
    if (world_.rank > 0) {
      static_cast<void>(store_->set(received + "/" + std::to_string(world_.rank), "",
                                    Clock::now() + kOneAttempt));
    } else {
      const std::size_t others = static_cast<std::size_t>(world_.size) - 1 - missing.size();
      static_cast<void>(store_->gather(received, others, Clock::now() + kFarewell));
    }
    std::sort(missing.begin(), missing.end(), [](const std::string& a, const std::string& b) {
      return std::atoi(a.c_str()) < std::atoi(b.c_str());
    });
    return make_error(ErrorCode::kTimedOut,
                      world_.described() +
                          (missing.size() == 1 ? ", but rank " + missing.front() + " has"
                                               : ", but ranks " + join(missing, ", ") + " have") +
                          " not called init" +
                          ". HOROVOD_SIZE=1 makes this process a world of its own");
  }

  StartedWorld world_;
  std::string token_;
  std::chrono::milliseconds timeout_;
  std::unique_ptr<rendezvous::HostedRendezvous> hosted_;  // of rank 0
  std::unique_ptr<rendezvous::HttpStore> store_;
  int rounds_ = 0;
};

std::unique_ptr<MeetingPoint>& here() {
  static std::unique_ptr<MeetingPoint> self;
  return self;
}

bool is_launched(ErrorText&) noexcept { return here() != nullptr; }

bool allgather(const void* data, std::size_t bytes, void* received, std::int64_t timeout_ms,
               ErrorText& error) noexcept {
  return here()->gather_notes(data, bytes, received, timeout_ms, error);
}

bool find_place(LauncherPlace* place, ErrorText& error) noexcept {
  return here()->find_place(place, here()->timeout(), error);
}

constexpr LauncherBootstrap kLauncherBootstrap = {is_launched, find_place, allgather};

}  // namespace

const LauncherBootstrap& meeting_point(const StartedWorld& world, const Settings& settings) {
  if (!here()) here() = std::make_unique<MeetingPoint>(world, settings);
  return kLauncherBootstrap;
}

// Rank 0 knows which are missing, so it gives up first, and all report its message: every other
// rank waits kRankZeroFirst longer than rank 0 can, and asks the store before it reports anything
// else. Only without rank 0 itself, the others decide.

namespace {

// For one look at the key that declares an epoch void: gather_workers() must not wait for it longer
// than the ranks wait for their handshakes.
// How long a rank waits for another one before it leaves a note, and for a leader before it looks
// again whether the meeting is over.
constexpr std::chrono::seconds kPause{2};

// Whether control messages go by the leaders of the hosts (control/tree_node.h). The same on all
// ranks.
bool is_large(const Settings& settings) {
  return settings.size > settings.star_ranks && settings.local_size < settings.size;
}

// Where the leader of a host publishes its address. Those of other hosts know its number, and the
// ranks of its own host that they share the machine: the numbers count only hosts with as many
// ranks.
std::string key_of_host(const Communicator::Start& start, int host) {
  return start.meeting_key + "-host-" + std::to_string(host);
}
std::string key_of_machine(const Communicator::Start& start) {
  std::string machine = start.machine.empty() ? machine_identity() : start.machine;
  std::replace(machine.begin(), machine.end(), '/', '-');  // which would be a place of the store
  return start.meeting_key + "-machine-" + machine;
}

// Opens the listener and publishes where it is.
Result<os::Fd> open_door(const Communicator::Start& start, const std::vector<std::string>& keys,
                         Deadline deadline) {
  auto address = parse_ip_address(start.address);
  if (!address) return std::move(address).error();
  auto listener = open_control_listener(*address);
  if (!listener) return std::move(listener).error();
  auto endpoint = net::local_endpoint(listener->get());
  if (!endpoint) return std::move(endpoint).error();
  // Published only now that the listener is bound: a worker that reads the key can connect at once.
  for (const std::string& key : keys) {
    HORA_TRY(start.store->set(key, format_endpoint(*endpoint), deadline));
  }
  return std::move(*listener);
}

// All have met. The program may be replaced by another one (exec) that joins the next world of the
// job as its first: that one must not find where this world has met.
void take_addresses_back(const Communicator::Start& start, const std::vector<std::string>& keys) {
  for (const std::string& key : keys) {
    static_cast<void>(start.store->remove(key, Clock::now() + kAskTimeout));
  }
}

bool is_void(const Communicator::Start& start) {
  const auto reported = start.store->get(start.void_key, Clock::now() + kAskTimeout);
  return reported && reported->has_value();
}

Result<ControlWorld> meet_as_coordinator(const Communicator::Start& start,
                                         const ControlIdentity& self, Deadline deadline) {
  const bool large = is_large(start.settings);
  std::vector<std::string> keys{start.meeting_key};
  if (large && start.settings.local_size > 1) keys.push_back(key_of_machine(start));
  auto listener = open_door(start, keys, deadline);
  if (!listener) return std::move(listener).error();
  // Only elastic jobs have a key that declares the epoch void. Rank 0 alone reads it while it
  // waits, and refuses the workers that are already connected.
  AbsentReport roll;
  if (!start.void_key.empty()) roll.is_void = [&] { return is_void(start); };
  const auto bound = net::local_endpoint(listener->get());
  const std::string own = bound ? format_endpoint(*bound) : "";
  roll.give_up = [&](const std::vector<int>& unseen) {
    Attendance attendance(*start.store, start.meeting_key, 0, self.size);
    // Another rank 0 has replaced this one's address, or was replaced by this one and has said so.
    const auto published = start.store->get(start.meeting_key, Clock::now() + kAskTimeout);
    if (published && *published && **published != own && **published != rendezvous::kVoidEpoch) {
      return attendance.give_up_twice("the process that listens at " + **published);
    }
    if (auto reported = attendance.abandoned_reason()) return *std::move(reported);
    return attendance.give_up(unseen);
  };
  auto world = large ? gather_tree(std::move(*listener), self, deadline, std::move(roll))
                     : gather_workers(std::move(*listener), self, deadline, std::move(roll));
  if (world) take_addresses_back(start, keys);
  return world;
}

Error lost_before_all_had_connected() {
  return make_error(ErrorCode::kUnavailable, "some ranks were lost before all had connected");
}

// A rank other than 0.
class Worker {
 public:
  Worker(const Communicator::Start& start, const ControlIdentity& self)
      : start_(start),
        self_(self),
        attendance_(*start.store, start.meeting_key, self.rank, self.size),
        timeout_(start.settings.start_timeout),
        deadline_(Clock::now() + timeout_),
        pause_(std::min<std::chrono::milliseconds>(kPause, timeout_ / 2)) {}

  // Whatever kept this rank out, rank 0 may have known before why no world would come about.
  Result<ControlWorld> meet() {
    auto world = is_large(start_.settings) ? join_above() : join_rank_0();
    if (world) return world;
    if (auto reported = attendance_.abandoned_reason()) return *std::move(reported);
    return world;
  }

 private:
  Result<ControlWorld> join_rank_0() {
    WayToRank0 way;
    way.over = "rank 0";
    way.on_no_connection = [this](bool refused) { note_cut_off({false, 0}, refused); };
    return join(start_.meeting_key, std::move(way));
  }

  // A leader opens its own door before it goes up, so that those below it need not wait for that.
  Result<ControlWorld> join_above() {
    const Settings& settings = start_.settings;
    WayToRank0 way;
    if (settings.local_rank > 0) {
      way.over = "the first rank of this host";
      return join(key_of_machine(start_), std::move(way));
    }
    std::vector<std::string> keys;
    if (settings.local_size > 1) keys.push_back(key_of_machine(start_));
    if (has_hosts_below(settings.cross_rank, settings.cross_size)) {
      keys.push_back(key_of_host(start_, settings.cross_rank));
    }
    if (!keys.empty()) {
      auto listener = open_door(start_, keys, deadline_);
      if (!listener) return std::move(listener).error();
      way.listener = std::move(*listener);
    }
    const int above = host_above(settings.cross_rank);
    way.over = above > 0 ? "the first rank of host " + std::to_string(above) : "rank 0";
    way.on_no_connection = [this, above](bool refused) { note_cut_off({true, above}, refused); };
    auto world = join(above > 0 ? key_of_host(start_, above) : start_.meeting_key, std::move(way));
    if (world) take_addresses_back(start_, keys);
    return world;
  }

  Result<ControlWorld> join(const std::string& key, WayToRank0 way) {
    auto where = key == start_.meeting_key ? find_rank_0() : find_leader(key, way.over);
    if (!where) return where.error();
    way.where = *where;
    // A rank that has published its address waits for no longer than this, from now; and so does
    // rank 0, once the way to it is open.
    way.timeout = timeout_ + kRankZeroFirst;
    way.late_after = pause_;
    way.on_late = [this] { static_cast<void>(attendance_.leave_note()); };
    return join_tree(std::move(way), self_, Clock::now() + timeout_ + kRankZeroFirst);
  }

  // A rank that has given the meeting up, or was lost, refuses those that come later.
  void note_cut_off(const rendezvous::PeerOfEpoch& peer, bool refused) {
    if (refused && attendance_.abandoned_reason()) return;
    if (refused && !start_.void_key.empty() && is_void(start_)) return;
    note_unreached(peer);
  }

  // One request waits for as long as it takes; a second one only for a rank 0 that is late.
  Result<Endpoint> find_rank_0() {
    auto published = look(start_.meeting_key, Clock::now() + pause_);
    if (is_late(published)) {
      HORA_TRY(attendance_.leave_note());
      published = look(start_.meeting_key, deadline_);
    }
    // No other rank knows more.
    if (is_late(published)) return attendance_.give_up();
    return endpoint_of(std::move(published), "rank 0");
  }

  // Rank 0, which may have come later, waits for this leader, too, and says so.
  Result<Endpoint> find_leader(const std::string& key, const std::string& who) {
    const Deadline deadline =
        deadline_ + std::min<std::chrono::milliseconds>(kRankZeroFirst, timeout_);
    while (Clock::now() < deadline) {
      auto published = look(key, std::min(deadline, Clock::now() + pause_));
      if (!is_late(published)) return endpoint_of(std::move(published), who);
      HORA_TRY(attendance_.leave_note());
      if (auto reported = attendance_.abandoned_reason()) return *std::move(reported);
      // The launcher publishes a void epoch under rank 0's key alone.
      if (!start_.void_key.empty() && is_void(start_)) return lost_before_all_had_connected();
    }
    return attendance_.give_up();
  }

  Result<std::string> look(const std::string& key, Deadline deadline) const {
    return start_.store->wait(key, deadline);
  }
  static bool is_late(const Result<std::string>& published) {
    return !published && published.error().code == ErrorCode::kTimedOut;
  }

  static Result<Endpoint> endpoint_of(Result<std::string> published, const std::string& who) {
    if (!published) {
      return std::move(published).error().with_context("waiting for " + who + " to start");
    }
    // The launcher overwrites rank 0's address with this when it gives the epoch up: no rank joins
    // a world that is already incomplete.
    if (*published == rendezvous::kVoidEpoch) return lost_before_all_had_connected();
    return parse_endpoint(*published);
  }

  const Communicator::Start& start_;
  const ControlIdentity& self_;
  Attendance attendance_;
  std::chrono::milliseconds timeout_;
  Deadline deadline_;  // for one to be there
  std::chrono::milliseconds pause_;
};

}  // namespace

Result<ControlWorld> meet(const Communicator::Start& start, std::string rank_info) {
  const Settings& settings = start.settings;
  const ControlIdentity self{settings.rank, settings.size, settings.job_id,
                             settings.rendezvous_token, std::move(rank_info)};
  if (settings.size == 1) {
    return ControlWorld{std::make_unique<TcpChannel>(), {self.rank_info}};
  }
  if (settings.rank > 0) return Worker(start, self).meet();
  return meet_as_coordinator(start, self, Clock::now() + settings.start_timeout);
}

}  // namespace hora::collectives
