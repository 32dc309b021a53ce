// SPDX-License-Identifier: Apache-2.0
#include "collectives/backends/shm/reductions.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "collectives/memory/segment.h"

namespace hora::collectives::shm {

// All operations work in turns. In each turn a rank waits until its place in the ring is free
// (kTaken of all, kDepth turns ago), copies its portion there, publishes kGiven, takes the others'
// portions, and publishes kTaken. Ranks with less to give still take part in every turn.

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

// Allreduce in turns is a pipeline over three counters. For turn t a rank gives (kGiven), reduces
// its own share when all have given (kReduced), and takes the others' results (kTaken). It gives
// turn t + 1 before it reduces turn t, and takes turn t - 1 after, so that no rank waits for
// another one's current work.

namespace {

constexpr std::int64_t kBlockBytes = 16 * 1024;  // one step of work, which stays in the L1 cache

}  // namespace

Reductions::Reductions(Rings& rings)
    : rings_(rings), scratch_(static_cast<std::size_t>(kBlockBytes)) {}

// Reduces elements [begin, end) of the whole vector. The others' elements are in their chunks of
// this turn at `offset_bytes`, this rank's own in its tensors. The result goes to `target` and,
// with `to_outputs`, to the outputs.
void Reductions::reduce_part(const Work& work, char* target, std::uint64_t turn,
                             std::int64_t offset_bytes, std::int64_t begin, std::int64_t end,
                             bool to_outputs) {
  const std::int64_t width = work.width();
  const std::int64_t block = kBlockBytes / width;
  const double prescale = work.step().prescale;
  work.view().each(
      begin, end,
      [&](const Piece& piece, std::int64_t first, std::int64_t count, std::int64_t offset) {
        for (std::int64_t done = 0; done < count; done += block) {
          const std::int64_t now = std::min(block, count - done);
          const std::int64_t place = (offset + done) * width;
          const char* own = static_cast<const char*>(piece.input) + (first + done) * width;
          if (prescale != 1.0) {
            kernels().scale[work.dtype()](scratch_.data(), own, now, prescale);
            own = scratch_.data();
          }
          const auto source = [&](int rank) {
            return rank == rings_.index() ? own : rings_.chunk(rank, turn) + offset_bytes + place;
          };
          work.reduce(target + place, source, rings_.size(), now);
          if (!to_outputs) continue;
          work.put(piece, first + done, target + place, now);
        }
      });
}

bool Reductions::allreduce_small(const Work& work) {
  const std::int64_t count = work.count();
  // The meeting's slots alternate, so a slow reader of the last meeting is not disturbed.
  work.give(rings_.small_slot_of_next_barrier(), 0, count);
  if (!rings_.barrier()) return false;
  work.view().each(
      0, count,
      [&](const Piece& piece, std::int64_t first, std::int64_t length, std::int64_t offset) {
        const auto source = [&](int rank) {
          return rings_.small_slot(rank) + offset * work.width();
        };
        work.reduce(static_cast<char*>(piece.output) + first * work.width(), source, rings_.size(),
                    length);
      });
  return true;
}

bool Reductions::allreduce_in_turns(const Work& work, std::int64_t part_bytes) {
  const std::int64_t total = work.count();
  const std::int64_t per_turn = part_bytes / work.width() * rings_.size();
  const std::uint64_t turns = turns_for(total, per_turn);
  const auto begin_of = [&](std::uint64_t turn) {
    return static_cast<std::int64_t>(turn) * per_turn;
  };
  // The last turn may be short; it is shared equally, too.
  const auto share = [&](std::uint64_t turn, int rank) {
    const std::int64_t begin = begin_of(turn);
    return share_of(rank, rings_.size(), begin, std::min(per_turn, total - begin), work.width());
  };
  const auto give_turn = [&](std::uint64_t turn) {
    // The chunk's place is free when all ranks have reduced what was there.
    if (!rings_.wait_for_place(kReduced, turn)) return false;
    for (int step = 1; step < rings_.size(); ++step) {
      const Share its = share(turn, rings_.turn_to(step));
      work.give(rings_.chunk(rings_.index(), turn) + (its.begin - begin_of(turn)) * work.width(),
                its.begin, its.end);
    }
    rings_.publish(kGiven, turn);
    return true;
  };
  const auto take_turn = [&](std::uint64_t turn) {
    for (int step = 1; step < rings_.size(); ++step) {
      const int rank = rings_.turn_to(step);
      if (!rings_.wait_one(kReduced, rank, turn)) return false;
      const Share its = share(turn, rank);
      work.take(rings_.part(rank, turn), its.begin, its.end);
    }
    rings_.publish(kTaken, turn);
    return true;
  };
  if (!give_turn(0)) return false;
  for (std::uint64_t turn = 0; turn < turns; ++turn) {
    if (turn + 1 < turns && !give_turn(turn + 1)) return false;
    if (!rings_.wait_all(kGiven, turn)) return false;
    // The place of the own part is free when all ranks have taken what was there.
    if (!rings_.wait_for_place(kTaken, turn)) return false;
    const Share own = share(turn, rings_.index());
    reduce_part(work, rings_.part(rings_.index(), turn), turn,
                (own.begin - begin_of(turn)) * work.width(), own.begin, own.end, true);
    rings_.publish(kReduced, turn);
    // One turn later, which gives the others time to reduce theirs.
    if (turn > 0 && !take_turn(turn - 1)) return false;
  }
  return take_turn(turns - 1) && rings_.finish(turns);
}

bool Reductions::reducescatter(const Work& work) {
  const std::int64_t* const counts = work.step().receive_counts;
  std::vector<std::int64_t> starts(1, 0);  // where each rank's part begins, in elements
  std::int64_t longest = 0;
  for (int rank = 0; rank < rings_.size(); ++rank) {
    starts.push_back(starts.back() + counts[rank]);
    longest = std::max(longest, counts[rank]);
  }
  const std::int64_t room = rings_.part_bytes() / work.width();
  const std::uint64_t turns = turns_for(longest, room);
  for (std::uint64_t turn = 0; turn < turns; ++turn) {
    if (!rings_.wait_for_place(kReduced, turn)) return false;
    for (int step = 1; step < rings_.size(); ++step) {
      const int rank = rings_.turn_to(step);
      const auto [begin, length] = portion(counts[rank], room, turn);
      const std::int64_t first = starts[static_cast<std::size_t>(rank)] + begin;
      // A chunk holds one portion per rank, at the rank's index.
      work.give(rings_.chunk(rings_.index(), turn) + rank * rings_.part_bytes(), first,
                first + length);
    }
    rings_.publish(kGiven, turn);
    if (!rings_.wait_all(kGiven, turn)) return false;
    const auto [begin, length] = portion(counts[rings_.index()], room, turn);
    const std::int64_t first = starts[static_cast<std::size_t>(rings_.index())] + begin;
    reduce_part(work, static_cast<char*>(work.piece().output) + begin * work.width(), turn,
                rings_.index() * rings_.part_bytes(), first, first + length, false);
    rings_.publish(kReduced, turn);
  }
  return rings_.finish(turns);
}

}  // namespace hora::collectives::shm
