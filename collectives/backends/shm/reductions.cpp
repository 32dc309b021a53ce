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

constexpr std::int64_t kBlockBytes = 4 * 1024;  // one step of work, which stays in the L1 cache

// Calls function(piece, first, count, place) for each block of elements [begin, end) of the whole
// vector: `count` elements of the piece from its element `first` on. `place` is where they are in a
// chunk, in bytes; `offset_bytes` for the first block.
template <typename Function>
void each_block(const Work& work, std::int64_t begin, std::int64_t end, std::int64_t offset_bytes,
                const Function& function) {
  const std::int64_t block = kBlockBytes / work.width();
  work.view().each(
      begin, end,
      [&](const Piece& piece, std::int64_t first, std::int64_t count, std::int64_t offset) {
        for (std::int64_t done = 0; done < count; done += block) {
          function(piece, first + done, std::min(block, count - done),
                   offset_bytes + (offset + done) * work.width());
        }
      });
}

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

// Allreduce in turns is a pipeline. For turn t a rank gives what the others reduce (kGiven),
// reduces its own share into the chunks of the others when all have given (kReduced), and takes the
// others' results from its own chunk. It gives turn t + 1 before it reduces turn t, and takes turn
// t - 1 after, so that no rank waits for another one's current work.
//
// Each cache line of a chunk goes to one other core and comes back: no two cores ever have it
// (take_lines()), which would make the next write to it ten times as slow.

Reductions::Reductions(Rings& rings)
    : rings_(rings), scratch_(static_cast<std::size_t>(kBlockBytes)) {}

// Reduces a block to `target`.
void Reductions::reduce_block(const Work& work, char* target, const Piece& piece,
                              std::int64_t first, std::int64_t count, std::uint64_t turn,
                              std::int64_t place) {
  const char* own = static_cast<const char*>(piece.input) + first * work.width();
  if (work.step().prescale != 1.0) {
    kernels().scale[work.dtype()](scratch_.data(), own, count, work.step().prescale);
    own = scratch_.data();
  }
  const auto source = [&](int rank) {
    return rank == rings_.index() ? own : rings_.chunk(rank, turn) + place;
  };
  work.reduce(target, source, rings_.size(), count);
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

// Which elements a rank reduces in which turn, and where they are in the chunk of the turn.
struct Reductions::Turns {
  std::int64_t total;
  std::int64_t per_turn;
  int size;
  std::int64_t width;

  std::int64_t begin(std::uint64_t turn) const {
    return static_cast<std::int64_t>(turn) * per_turn;
  }
  // The last turn may be short; it is shared equally, too.
  Share share(std::uint64_t turn, int rank) const {
    return share_of(rank, size, begin(turn), std::min(per_turn, total - begin(turn)), width);
  }
  std::int64_t place(std::uint64_t turn, const Share& its) const {
    return (its.begin - begin(turn)) * width;
  }
  std::size_t bytes(std::int64_t count) const { return static_cast<std::size_t>(count * width); }
};

bool Reductions::give_turn(const Work& work, const Turns& turns, std::uint64_t turn) {
  // Of this operation, this rank itself was the last to read what was there.
  if (turn < kDepth && !rings_.wait_for_place(kTaken, turn)) return false;
  for (int step = 1; step < rings_.size(); ++step) {
    const Share its = turns.share(turn, rings_.turn_to(step));
    work.give(rings_.chunk(rings_.index(), turn) + turns.place(turn, its), its.begin, its.end);
  }
  rings_.publish(kGiven, turn);
  return true;
}

bool Reductions::reduce_turn(const Work& work, const Turns& turns, std::uint64_t turn) {
  if (!rings_.wait_all(kGiven, turn)) return false;
  // The first chunk that is not its own: no rank's elements are lost before they are read.
  const int first_other = rings_.index() == 0 ? 1 : 0;
  const Share own = turns.share(turn, rings_.index());
  each_block(work, own.begin, own.end, turns.place(turn, own),
             [&](const Piece& piece, std::int64_t first, std::int64_t count, std::int64_t place) {
               for (int rank = 0; rank < rings_.size(); ++rank) {
                 if (rank == rings_.index()) continue;
                 take_lines(rings_.chunk(rank, turn) + place, turns.bytes(count));
               }
               char* const result = rings_.chunk(first_other, turn) + place;
               reduce_block(work, result, piece, first, count, turn, place);
               for (int rank = first_other + 1; rank < rings_.size(); ++rank) {
                 if (rank == rings_.index()) continue;
                 std::memcpy(rings_.chunk(rank, turn) + place, result, turns.bytes(count));
               }
               work.put(piece, first, result, count);
             });
  rings_.publish(kReduced, turn);
  return true;
}

bool Reductions::take_turn(const Work& work, const Turns& turns, std::uint64_t turn) {
  char* const chunk = rings_.chunk(rings_.index(), turn);
  for (int step = 1; step < rings_.size(); ++step) {
    const int rank = rings_.turn_to(step);
    if (!rings_.wait_one(kReduced, rank, turn)) return false;
    const Share its = turns.share(turn, rank);
    each_block(work, its.begin, its.end, turns.place(turn, its),
               [&](const Piece& piece, std::int64_t first, std::int64_t count, std::int64_t place) {
                 take_lines(chunk + place, turns.bytes(count));
                 work.put(piece, first, chunk + place, count);
               });
  }
  return true;
}

bool Reductions::allreduce_in_turns(const Work& work, std::int64_t part_bytes) {
  const Turns turns{work.count(), part_bytes / work.width() * rings_.size(), rings_.size(),
                    work.width()};
  const std::uint64_t count = turns_for(turns.total, turns.per_turn);
  if (!give_turn(work, turns, 0)) return false;
  for (std::uint64_t turn = 0; turn < count; ++turn) {
    if (turn + 1 < count && !give_turn(work, turns, turn + 1)) return false;
    if (!reduce_turn(work, turns, turn)) return false;
    // One turn later, which gives the others time to reduce theirs.
    if (turn > 0 && !take_turn(work, turns, turn - 1)) return false;
  }
  return take_turn(work, turns, count - 1) && rings_.finish(count);
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
    const std::int64_t start = starts[static_cast<std::size_t>(rings_.index())] + begin;
    const std::int64_t offset = rings_.index() * rings_.part_bytes();
    char* const output = static_cast<char*>(work.piece().output) + begin * work.width();
    each_block(work, start, start + length, offset,
               [&](const Piece& piece, std::int64_t first, std::int64_t count, std::int64_t place) {
                 reduce_block(work, output + (place - offset), piece, first, count, turn, place);
               });
    rings_.publish(kReduced, turn);
  }
  return rings_.finish(turns);
}

}  // namespace hora::collectives::shm
