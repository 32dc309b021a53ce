// SPDX-License-Identifier: Apache-2.0
// All operations work in turns. In each turn a rank waits until its place in the ring is free
// (kTaken of all, kDepth turns ago), copies its portion there, publishes kGiven, takes the others'
// portions, and publishes kTaken. Ranks with less to give still take part in every turn.
#include "collectives/backends/shm/movements.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace hora::collectives::shm {

namespace {

// memcpy() of a null pointer is undefined even for 0 bytes.
void copy(char* target, const char* source, std::int64_t bytes) {
  if (bytes > 0) std::memcpy(target, source, static_cast<std::size_t>(bytes));
}

// Runs `turns` turns in which each rank gives bytes to each other one. give_portion(turn) and
// take_portion(rank, turn) copy one portion.
template <typename Give, typename Take>
bool exchange_in_turns(Rings& rings, std::uint64_t turns, const Give& give_portion,
                       const Take& take_portion) {
  for (std::uint64_t turn = 0; turn < turns; ++turn) {
    // Only then is the place of the turn kDepth ago free again.
    if (!rings.wait_for_place(kTaken, turn)) return false;
    give_portion(turn);
    rings.publish(kGiven, turn);
    for (int step = 0; step < rings.size(); ++step) {
      const int rank = rings.turn_to(step);
      if (!rings.wait_one(kGiven, rank, turn)) return false;
      take_portion(rank, turn);
    }
    rings.publish(kTaken, turn);
  }
  return rings.finish(turns);
}

// The largest of all ranks' numbers: one meeting with a small slot.
bool agree_on_largest(Rings& rings, std::uint64_t mine, std::uint64_t* largest) {
  std::memcpy(rings.small_slot_of_next_barrier(), &mine, sizeof mine);
  if (!rings.barrier()) return false;
  for (int rank = 0; rank < rings.size(); ++rank) {
    std::uint64_t theirs = 0;
    std::memcpy(&theirs, rings.small_slot(rank), sizeof theirs);
    *largest = std::max(*largest, theirs);
  }
  return true;
}

}  // namespace

// The root gives chunk by chunk; the other ranks take.
bool broadcast(Rings& rings, const Work& work) {
  const Step& step = work.step();
  const std::int64_t total = work.count();
  const std::int64_t per_turn = rings.chunk_bytes() / work.width();
  const std::uint64_t turns = turns_for(total, per_turn);
  for (std::uint64_t turn = 0; turn < turns; ++turn) {
    const std::int64_t begin = static_cast<std::int64_t>(turn) * per_turn;
    const std::int64_t end = std::min(total, begin + per_turn);
    char* const place = rings.chunk(step.root, turn);
    if (rings.index() == step.root) {
      if (!rings.wait_for_place(kTaken, turn)) return false;
      work.give(place, begin, end);
      rings.publish(kGiven, turn);
    } else {
      if (!rings.wait_one(kGiven, step.root, turn)) return false;
      work.take(place, begin, end);
    }
    // The root publishes it, too: wait_for_place() waits for all ranks.
    rings.publish(kTaken, turn);
  }
  // The root's own output never travels through the ring.
  for (int i = 0; rings.index() == step.root && i < step.piece_count; ++i) {
    const Piece& piece = step.pieces[i];
    if (piece.input == piece.output) continue;
    copy(static_cast<char*>(piece.output), static_cast<const char*>(piece.input),
         piece.count * work.width());
  }
  return rings.finish(turns);
}

bool allgather(Rings& rings, const Work& work) {
  const Piece& piece = work.piece();
  const auto bytes_of = [&](int rank) { return work.step().receive_counts[rank] * work.width(); };
  std::vector<std::int64_t> offsets(1, 0);
  std::int64_t longest = 0;
  for (int rank = 0; rank < rings.size(); ++rank) {
    longest = std::max(longest, bytes_of(rank));
    offsets.push_back(offsets.back() + bytes_of(rank));
  }
  const std::int64_t room = rings.chunk_bytes();
  const auto give_portion = [&](std::uint64_t turn) {
    const auto [begin, length] = portion(bytes_of(rings.index()), room, turn);
    copy(rings.chunk(rings.index(), turn), static_cast<const char*>(piece.input) + begin, length);
  };
  const auto take_portion = [&](int rank, std::uint64_t turn) {
    const auto [begin, length] = portion(bytes_of(rank), room, turn);
    copy(static_cast<char*>(piece.output) + offsets[static_cast<std::size_t>(rank)] + begin,
         // A rank's own rows go straight from its input.
         rank == rings.index() ? static_cast<const char*>(piece.input) + begin
                               : rings.chunk(rank, turn),
         length);
  };
  return exchange_in_turns(rings, turns_for(longest, room), give_portion, take_portion);
}

bool alltoall(Rings& rings, const Work& work) {
  const Piece& piece = work.piece();
  const Step& step = work.step();
  std::vector<std::int64_t> sources(1, 0);
  std::vector<std::int64_t> targets(1, 0);
  std::int64_t longest = 0;
  for (int rank = 0; rank < rings.size(); ++rank) {
    sources.push_back(sources.back() + step.send_counts[rank] * work.width());
    targets.push_back(targets.back() + step.receive_counts[rank] * work.width());
    longest = std::max(longest, step.send_counts[rank] * work.width());
  }
  // The number of turns follows from the largest row of all ranks; each rank knows only its own.
  const std::int64_t room = rings.part_bytes();
  std::uint64_t turns = 0;
  if (!agree_on_largest(rings, turns_for(longest, room), &turns)) return false;
  const auto source = [&](int rank, std::int64_t begin) {
    return static_cast<const char*>(piece.input) + sources[static_cast<std::size_t>(rank)] + begin;
  };
  const auto give_portion = [&](std::uint64_t turn) {
    for (int rank = 0; rank < rings.size(); ++rank) {
      if (rank == rings.index()) continue;
      const auto [begin, length] = portion(step.send_counts[rank] * work.width(), room, turn);
      // A chunk holds one portion per receiver, at the receiver's index.
      copy(rings.chunk(rings.index(), turn) + rank * room, source(rank, begin), length);
    }
  };
  const auto take_portion = [&](int rank, std::uint64_t turn) {
    const auto [begin, length] = portion(step.receive_counts[rank] * work.width(), room, turn);
    copy(static_cast<char*>(piece.output) + targets[static_cast<std::size_t>(rank)] + begin,
         rank == rings.index() ? source(rank, begin)
                               : rings.chunk(rank, turn) + rings.index() * room,
         length);
  };
  return exchange_in_turns(rings, turns, give_portion, take_portion);
}

}  // namespace hora::collectives::shm
