// SPDX-License-Identifier: Apache-2.0
// Shared memory holds one Line per rank, then two slots per rank, each followed by room for a
// tensor that does not fit into the slot itself. Only its owner writes a slot; a turn number that
// is stored last, with release, publishes the rest. The turn number only grows, so a slot needs no
// reset.
#include "collectives/control/shm_fast_path.h"

#include <algorithm>
#include <utility>

#include "collectives/memory/cache_lines.h"

namespace hora::collectives {

// Requests between a rank and the others. 128 bytes keep two ranks apart even where the CPU fetches
// cache lines in pairs.
struct alignas(128) ShmFastPath::Line {
  std::atomic<std::uint64_t>
      called;                       // the latest turn in which another rank asked this one to post
  std::atomic<std::uint32_t> bell;  // which posts have to wake this rank
  // Rank 0's: how much of a tensor each rank has at least in an operation of two turns. Written
  // before its first post, read when that is decided.
  std::atomic<std::uint32_t> worth_sharing;
};

// The posts of a rank. Two slots, for even and odd turns, are enough: a rank posts again only when
// the turn before is decided, and by then every rank has finished with the turn before that one.
struct alignas(64) ShmFastPath::Slot {
  std::atomic<std::uint64_t> turn;  // the latest turn for which the rest is valid
  std::uint64_t number;
  char small[48];  // a small tensor shares the cache line, so one transfer brings everything
};

namespace {

// Values of Line::bell. While ranks find each other's posts by polling, none of them writes it, and
// each keeps the cache lines of all.
constexpr std::uint32_t kNone = 0;
constexpr std::uint32_t kTheLast = 1;  // the one that decides a turn
constexpr std::uint32_t kEvery = 2;

constexpr std::size_t kMostRoom = 128 * 1024;
// How much of the next tensor's place next() prefetches.
constexpr std::size_t kMostAhead = 2048;
// The budget for the places of all ranks: the more ranks, the less room for each.
constexpr std::size_t kRoomOfAll = 2 * 1024 * 1024;
// Shares of this size save as much time as the second turn takes: with a core for each rank, and
// where the ranks have to take turns on their cores. Two ranks read as much of each other in one
// turn, and save what it takes to write lines that both cores have; on one core they save nothing.
constexpr std::uint32_t worth_sharing_for(int size, bool cores) {
  if (size == 2) return cores ? 2048 : 0;
  return cores ? 512 : 4096;
}

}  // namespace

std::size_t ShmFastPath::room(int size) {
  return std::clamp(kRoomOfAll / static_cast<std::size_t>(size) / 64 * 64, std::size_t{1024},
                    kMostRoom);
}

std::size_t ShmFastPath::memory_bytes(int size) {
  return static_cast<std::size_t>(size) * (sizeof(Line) + 2 * (sizeof(Slot) + room(size)));
}

void ShmFastPath::attach(void* memory, int rank, int size, bool cores,
                         std::function<void(int)> ring, int collector) {
  memory_ = static_cast<char*>(memory);
  rank_ = rank;
  size_ = size;
  collector_ = collector;
  room_ = room(size);
  ring_ = std::move(ring);
  if (rank == 0) {
    line(0).worth_sharing.store(worth_sharing_for(size, cores), std::memory_order_relaxed);
  }
}

ShmFastPath::Line& ShmFastPath::line(int rank) const {
  return reinterpret_cast<Line*>(memory_)[rank];
}

ShmFastPath::Slot& ShmFastPath::slot(int rank, std::uint64_t turn) const {
  char* const slots = memory_ + static_cast<std::size_t>(size_) * sizeof(Line);
  const std::size_t index = 2 * static_cast<std::size_t>(rank) + turn % 2;
  return *reinterpret_cast<Slot*>(slots + index * (sizeof(Slot) + room_));
}

char* ShmFastPath::own_place(std::size_t bytes) {
  last_bytes_ = bytes <= sizeof(Slot::small) ? 0 : bytes;
  return place(rank_, turn_, bytes);
}

bool ShmFastPath::takes_two_turns(std::size_t bytes) const {
  // Not what this rank sees: ranks that are bound to cores may see their host in different ways.
  const std::uint32_t share = line(0).worth_sharing.load(std::memory_order_relaxed);
  return share > 0 && bytes >= std::size_t{share} * static_cast<std::size_t>(size_);
}

char* ShmFastPath::place(int rank, std::uint64_t turn, std::size_t bytes) const {
  Slot& its = slot(rank, turn);
  return bytes <= sizeof its.small ? its.small : reinterpret_cast<char*>(&its + 1);
}

bool ShmFastPath::has_posted(int rank) const {
  // The acquire pairs with the release in post(): a rank that sees the turn sees the number and the
  // tensor, too.
  return slot(rank, turn_).turn.load(std::memory_order_acquire) >= turn_;
}

void ShmFastPath::post(std::uint64_t number) {
  Slot& own = slot(rank_, turn_);
  own.number = number;
  own.turn.store(turn_, std::memory_order_release);
  posted_ = true;
  // The fence pairs with those in listen() and park() (ring_channel.cpp). It orders the store above
  // before the loads below, so of the ranks that post last at least one sees all posts and wakes
  // the sleepers; and either this rank sees that another one listens or rests, or that one sees
  // this post when it looks before it sleeps.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const bool last = decided();
  for (int rank = 0; rank < size_; ++rank) {
    if (rank == rank_) continue;
    const std::uint32_t bell = line(rank).bell.load(std::memory_order_relaxed);
    const bool acts = last && (collector_ < 0 ? bell == kTheLast : rank == collector_);
    if (acts || bell == kEvery) ring_(rank);
  }
}

bool ShmFastPath::decided() {
  // seen_ survives between calls: a turn costs one look per rank in total, not one per poll.
  while (seen_ < size_ && has_posted(seen_)) ++seen_;
  return seen_ == size_;
}

std::uint64_t ShmFastPath::common() const {
  const std::uint64_t own = slot(rank_, turn_).number;
  for (int rank = 0; rank < size_; ++rank) {
    if (slot(rank, turn_).number != own) return kNothing;
  }
  return own;
}

void ShmFastPath::next() {
  ++turn_;
  posted_ = false;
  seen_ = 0;
  // The others have read the cache lines that this rank writes next and share them still. Take them
  // back now, while this rank waits anyway. The next tensor is likely to be as long as the last
  // one.
  const char* const own = reinterpret_cast<const char*>(&slot(rank_, turn_));
  for (std::size_t at = 0; at < sizeof(Slot) + std::min(last_bytes_, kMostAhead);
       at += kLineBytes) {
    fetch_to_write(own + at);
  }
}

void ShmFastPath::listen(bool listening) {
  if (listening == listening_) return;
  listening_ = listening;
  send_bells();
  // Pairs with the fence in post(): a post that misses the flag is visible to our next look.
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

void ShmFastPath::rest(bool resting) {
  // Before its post, a rank is needed only when it is called upon.
  resting = resting && posted_;
  if (resting == resting_) return;
  resting_ = resting;
  send_bells();
}

void ShmFastPath::send_bells() {
  line(rank_).bell.store(listening_ ? kEvery
                         : resting_ ? kTheLast
                                    : kNone,
                         std::memory_order_relaxed);
}

bool ShmFastPath::called_upon() {
  if (posted_) return false;
  if (line(rank_).called.load(std::memory_order_acquire) >= turn_) return true;
  // A rank that listens answers every post, because the poster waits for all ranks.
  if (!listening_) return false;
  for (int rank = 0; rank < size_; ++rank) {
    if (has_posted(rank)) return true;
  }
  return false;
}

void ShmFastPath::call_upon_others() {
  for (int rank = 0; rank < size_; ++rank) {
    if (has_posted(rank)) continue;
    line(rank).called.store(turn_, std::memory_order_release);
    ring_(rank);
  }
}

void ShmFastPath::ring_listeners() {
  // As in post(): orders what the caller has published before the look at the flags.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (int rank = 0; rank < size_; ++rank) {
    if (rank != rank_ && line(rank).bell.load(std::memory_order_relaxed) == kEvery) ring_(rank);
  }
}

}  // namespace hora::collectives
