// SPDX-License-Identifier: Apache-2.0
// The shared memory of a set's ranks: rings of chunks, slots for small data, and the
// counters by which the ranks publish their progress. One thread at a time; abort() from any.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/backend.h"
#include "collectives/backends/shm/board.h"
#include "collectives/backends/shm/layout.h"
#include "collectives/memory/segment.h"

namespace hora::collectives::shm {

// Counters of the board; each only grows. The first three count turns of the rings, over all
// operations. A value means "I have done my share of all turns below this number":
//   kGiven    my chunks are there
//   kReduced  I have reduced my part, and no longer use the others' chunks for it
//   kTaken    I have taken what was for me
// The fourth counts meetings.
enum Counter { kGiven = 0, kReduced = 1, kTaken = 2, kMet = 3 };

class Rings {
 public:
  // Collective. On false `error` says why.
  bool open(const GroupContext& group, ErrorText& error);
  // Collective, after open() and before the first operation: the ranks exchange their memory nodes
  // (nodes.h). Without this call everything works, only slower on several nodes.
  bool look_at_nodes(const GroupContext& group, int node, ErrorText& error);

  int index() const { return index_; }
  int size() const { return layout_.size; }
  // The rank that this one turns to at each step, itself first.
  int turn_to(int step) const { return order_[static_cast<std::size_t>(step)]; }
  std::int64_t small_bytes() const { return layout_.small_bytes; }
  std::int64_t chunk_bytes() const { return layout_.chunk_bytes; }
  std::int64_t part_bytes() const { return layout_.part_bytes; }

  // Turns count from the beginning of the operation.
  char* chunk(int rank, std::uint64_t turn) const {
    return layout_.chunk(base_address_, rank, base_ + turn);
  }

  // Announces that this rank has done its share of a turn. The waits return false when the job is
  // ending.
  void publish(Counter counter, std::uint64_t turn) { publish_absolute(counter, base_ + turn + 1); }
  bool wait_all(Counter counter, std::uint64_t turn) {
    return board_.wait_all(counter, base_ + turn + 1);
  }
  bool wait_one(Counter counter, int rank, std::uint64_t turn) {
    return board_.wait_one(counter, rank, base_ + turn + 1);
  }
  // Waits until no rank needs the previous contents of this turn's chunk.
  bool wait_for_place(Counter counter, std::uint64_t turn) {
    const std::uint64_t absolute = base_ + turn;
    return absolute < kDepth || board_.wait_all(counter, absolute - kDepth + 1);
  }
  // Ends an operation of `turns` turns for this rank. Others may still be at work: the next use of
  // a place in a ring waits for them (wait_for_place).
  bool finish(std::uint64_t turns) {
    base_ += turns;
    for (Counter counter : {kGiven, kReduced, kTaken}) publish_absolute(counter, base_);
    return !board_.aborted();
  }

  // Returns when all ranks of the set have called it.
  bool barrier() {
    ++meetings_;
    board_.advance(kMet, meetings_);
    return board_.wait_all(kMet, meetings_);
  }
  // A rank fills a slot before a meeting and the others read it after the meeting. The slot's next
  // use is for the meeting after the next; by then all have finished reading, since all have come
  // to the meeting in between.
  char* small_slot(int rank) const { return layout_.small_slot(base_address_, rank, meetings_); }
  char* small_slot_of_next_barrier() const {
    return layout_.small_slot(base_address_, index_, meetings_ + 1);
  }

  void abort() { board_.abort(); }
  bool aborted() const { return board_.aborted(); }

 private:
  void publish_absolute(Counter counter, std::uint64_t value) {
    if (own_[counter] == value) return;
    own_[counter] = value;
    board_.advance(counter, value);
  }

  Segment segment_;
  Layout layout_;
  char* base_address_ = nullptr;
  int index_ = 0;
  std::vector<int> order_;
  Board board_;
  std::uint64_t own_[3] = {};
  std::uint64_t base_ = 0;  // turns of all operations so far
  std::uint64_t meetings_ = 0;
};

}  // namespace hora::collectives::shm
