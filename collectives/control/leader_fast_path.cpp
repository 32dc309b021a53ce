// SPDX-License-Identifier: Apache-2.0
// Memory of a host: the board (an ShmFastPath among the ranks of this host), then one Release and
// the results of two turns, which only the leader writes. A turn passes through three states: the
// host's ranks post on the board; the leaders exchange (begun_ == turn, exchange_.running()); the
// leader stores the outcome in Release, which decides the turn for its host.
#include "collectives/control/leader_fast_path.h"

#include <algorithm>
#include <atomic>
#include <utility>

namespace hora::collectives {

// The data that a leader publishes to its host. Two turns, even and odd, are enough: a rank posts
// again only when it has finished with the turn before. Each member that is polled has its own
// cache lines.
struct LeaderFastPath::Release {
  alignas(128) std::atomic<std::uint64_t> received;  // the latest turn that leaders of other hosts
                                                     // have reached
  struct alignas(64) Turn {
    std::atomic<std::uint64_t> turn;  // the latest turn for which the rest is valid
    std::uint64_t number;
  } turns[2];
};

namespace {

// Rounded up to the alignment of Release, which follows the board.
std::size_t board_bytes(const LeaderPlan& plan) {
  return (ShmFastPath::memory_bytes(static_cast<int>(plan.here().size())) + 127) / 128 * 128;
}

int ranks_of(const LeaderPlan& plan) {
  std::size_t all = 0;
  for (const auto& each : plan.members) all += each.size();
  return static_cast<int>(all);
}

// Tensors of this size, in bytes, go by the leaders whatever the hosts.
constexpr std::size_t kSmall = 16 * 1024;
// A leader reduces the tensors of its host alone. Beyond this size, its ranks do better in
// parallel, through the backends.
constexpr std::size_t kMostOfHost = 1024 * 1024;

// The same on all hosts, whose boards have room for it.
std::size_t room_of(const LeaderPlan& plan) {
  const auto members = static_cast<std::size_t>(plan.most_members());
  const std::size_t most =
      std::clamp(kMostOfHost / members / 64 * 64, kSmall,
                 plan.has_partners() ? LeaderFastPath::kMostUneven : LeaderFastPath::kMostRoom);
  return std::min(most, ShmFastPath::room(plan.most_members()));
}

}  // namespace

std::size_t LeaderFastPath::memory_bytes(const LeaderPlan& plan) {
  return board_bytes(plan) + sizeof(Release) + 2 * room_of(plan);
}

LeaderFastPath::LeaderFastPath(LeaderPlan plan, void* memory, std::function<void(int)> ring,
                               std::function<void(int, std::string_view)> send)
    : plan_(std::move(plan)),
      size_(ranks_of(plan_)),
      room_(room_of(plan_)),
      release_(reinterpret_cast<Release*>(static_cast<char*>(memory) + board_bytes(plan_))),
      ring_(std::move(ring)),
      exchange_(plan_.steps, std::move(send)),
      reported_(static_cast<std::size_t>(size_), 0) {
  // Place 0, the leader, is the collector: the other ranks wait for Release, not for the board.
  board_.attach(memory, plan_.place, static_cast<int>(plan_.here().size()), false, ring_, 0);
}

bool LeaderFastPath::decided() {
  // Acquire pairs with the release in go_on(): the number and the result are visible with the turn.
  return release().turns[turn() % 2].turn.load(std::memory_order_acquire) >= turn();
}

std::uint64_t LeaderFastPath::common() const { return release().turns[turn() % 2].number; }

char* LeaderFastPath::result() const {
  return reinterpret_cast<char*>(release_ + 1) + turn() % 2 * room_;
}

bool LeaderFastPath::has_posted(int rank) const {
  // Ranks of other hosts report their posts to rank 0 in messages; the board knows this host's
  // ranks.
  if (reported_[static_cast<std::size_t>(rank)] >= turn()) return true;
  const auto& here = plan_.here();
  const auto at = std::lower_bound(here.begin(), here.end(), rank);
  return at != here.end() && *at == rank && board_.has_posted(static_cast<int>(at - here.begin()));
}

void LeaderFastPath::note_posted(int rank, std::uint64_t turn) {
  std::uint64_t& reported = reported_[static_cast<std::size_t>(rank)];
  reported = std::max(reported, turn);
}

bool LeaderFastPath::called_upon() {
  if (board_.posted()) return false;
  if (called() || board_.called_upon()) return true;
  // A rank that listens must not keep other hosts waiting either.
  return board_.listening() && release().received.load(std::memory_order_acquire) >= turn();
}

bool LeaderFastPath::has_work() {
  if (!attentive_) return false;
  if (!failure_.empty()) return true;
  // After its post a rank waits for the decision, and a leader for the next step; before it, only
  // for a call to post.
  return board_.posted() ? decided() || can_go_on() : called_upon();
}

void LeaderFastPath::arrived(int host, std::string message) {
  exchange_.arrived(host, std::move(message));
  // Only the leader writes `received`, so its own load needs no order. The store is a release as
  // those for the readers in called_upon(); the bells ring after it.
  if (exchange_.received() <= release().received.load(std::memory_order_relaxed)) return;
  release().received.store(exchange_.received(), std::memory_order_release);
  board_.ring_listeners();
}

bool LeaderFastPath::can_go_on() {
  if (!plan_.leads() || !board_.posted()) return false;
  // The exchange begins when all ranks of this host have posted; a leader cannot speak for fewer.
  return begun_ < turn() ? board_.decided() : exchange_.can_go_on();
}

bool LeaderFastPath::go_on(LeaderExchange::Payload* load) {
  if (begun_ < turn()) {
    begun_ = turn();
    exchange_.begin(turn(), posted_here());
  }
  if (!exchange_.go_on(load)) return false;
  if (exchange_.running()) return true;
  // The number goes first and the turn last, with release: decided() of another rank may be true as
  // soon as the turn is visible.
  Release::Turn& reported = release().turns[turn() % 2];
  reported.number = exchange_.number();
  reported.turn.store(turn(), std::memory_order_release);
  for (int place = 1; place < board_.size(); ++place) ring_(place);
  return true;
}

void LeaderFastPath::lost_leader(int host, std::string how) {
  const int rank = plan_.leader_of(host);
  fail("the connection to rank " + std::to_string(rank) +
       ", which leads its host, has ended: " + how);
  if (!lost_) lost_ = LostLeader{rank, std::move(how)};
}

}  // namespace hora::collectives
