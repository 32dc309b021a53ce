// SPDX-License-Identifier: Apache-2.0
// Rank 0 knows who is missing, so it gives up first, and what it says is what all say: every other
// rank waits kRankZeroFirst longer than rank 0 can, and asks the store before it says something
// else. Only while rank 0 itself is not there, the others decide.
#include "collectives/runtime/control_meeting.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "collectives/control/oob_allgather.h"
#include "collectives/control/tcp_channel.h"
#include "collectives/control/tree_plan.h"
#include "collectives/runtime/attendance.h"
#include "collectives/runtime/elastic_world.h"
#include "collectives/runtime/machine_identity.h"
#include "rendezvous/base/address.h"
#include "rendezvous/contract/elastic_place.h"
#include "rendezvous/net/socket.h"

namespace hora::collectives {

namespace {

// For one look at the key that declares an epoch void: gather_workers() must not wait for it longer
// than the ranks wait for their handshakes.
constexpr std::chrono::seconds kAskPatience{2};
// How long a rank waits for another one before it leaves a note, and for a leader before it looks
// again whether the meeting is over.
constexpr std::chrono::seconds kPause{2};

// Whether control messages go by the leaders of the hosts (tree_plan.h). The same on all ranks.
bool is_large(const Settings& settings) {
  return settings.size > settings.star_ranks && settings.local_size < settings.size;
}

// Where the leader of a host says where it is. Those of other hosts know its number, and the ranks
// of its own host that they share the machine: the numbers count only hosts with as many ranks.
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
    static_cast<void>(start.store->remove(key, Clock::now() + kAskPatience));
  }
}

bool is_void(const Communicator::Start& start) {
  const auto told = start.store->get(start.void_key, Clock::now() + kAskPatience);
  return told && told->has_value();
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
  RollCall roll;
  if (!start.void_key.empty()) roll.is_void = [&] { return is_void(start); };
  roll.give_up = [&](const std::vector<int>& unseen) {
    return Attendance(*start.store, start.meeting_key, 0, self.size).give_up(unseen);
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
        patience_(start.settings.start_timeout),
        deadline_(Clock::now() + patience_),
        pause_(std::min<std::chrono::milliseconds>(kPause, patience_ / 2)) {}

  // Whatever kept this rank out, rank 0 may have known before why no world would come about.
  Result<ControlWorld> meet() {
    auto world = is_large(start_.settings) ? join_above() : join_rank_0();
    if (world) return world;
    if (auto told = attendance_.told()) return *std::move(told);
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
    // Whoever has published where it is waits for no longer than this, from now; and rank 0, once
    // the way to it is open.
    way.patience = patience_ + kRankZeroFirst;
    way.late_after = pause_;
    way.on_late = [this] { attendance_.leave_note(); };
    return join_tree(std::move(way), self_, Clock::now() + patience_ + kRankZeroFirst);
  }

  // Who has given the meeting up, or was lost, refuses those who come after that.
  void note_cut_off(const rendezvous::PeerOfEpoch& peer, bool refused) {
    if (refused && attendance_.told()) return;
    if (refused && !start_.void_key.empty() && is_void(start_)) return;
    note_unreached(peer);
  }

  // One request waits for as long as it takes; a second one only for a rank 0 that is late.
  Result<Endpoint> find_rank_0() {
    auto published = look(start_.meeting_key, Clock::now() + pause_);
    if (is_late(published)) {
      attendance_.leave_note();
      published = look(start_.meeting_key, deadline_);
    }
    // There is nobody who knows more.
    if (is_late(published)) return attendance_.give_up();
    return endpoint_of(std::move(published), "rank 0");
  }

  // Rank 0, which may have come later, waits for this leader, too, and says so.
  Result<Endpoint> find_leader(const std::string& key, const std::string& who) {
    const Deadline deadline =
        deadline_ + std::min<std::chrono::milliseconds>(kRankZeroFirst, patience_);
    while (Clock::now() < deadline) {
      auto published = look(key, std::min(deadline, Clock::now() + pause_));
      if (!is_late(published)) return endpoint_of(std::move(published), who);
      attendance_.leave_note();
      if (auto told = attendance_.told()) return *std::move(told);
      // The launcher tells of a void epoch under rank 0's key alone.
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
    // The launcher overwrites rank 0's address with this when it gives the epoch up: nobody joins a
    // world that is already incomplete.
    if (*published == rendezvous::kVoidEpoch) return lost_before_all_had_connected();
    return parse_endpoint(*published);
  }

  const Communicator::Start& start_;
  const ControlIdentity& self_;
  Attendance attendance_;
  std::chrono::milliseconds patience_;
  Deadline deadline_;  // for somebody to be there
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
