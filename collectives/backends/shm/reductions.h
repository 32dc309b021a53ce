// SPDX-License-Identifier: Apache-2.0
// Reductions and movements of data through shared memory.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/backends/shm/rings.h"
#include "collectives/backends/shm/work.h"

namespace hora::collectives::shm {

// Collectives over shared memory that move tensors unchanged. They return false when the job is
// ending.

bool broadcast(Rings& rings, const Work& work);
bool allgather(Rings& rings, const Work& work);
bool alltoall(Rings& rings, const Work& work);

// Reductions over shared memory, chunk by chunk. Every element is reduced in the order of the set's
// indices, so all results are bit-equal, on all ranks and for all sizes.

// All functions return false when the job is ending.
class Reductions {
 public:
  explicit Reductions(Rings& rings);

  // Every rank gives everything and reduces everything: one hand-over, after which each works
  // alone. At most small_bytes() of the rings.
  bool allreduce_small(const Work& work);
  // Every rank gives what the others reduce, reduces its own part, and takes the others' parts: at
  // most `part_bytes` of each at a time.
  bool allreduce_in_turns(const Work& work, std::int64_t part_bytes);
  // Each turn handles a portion of every rank's part: every rank gives what the others reduce.
  bool reducescatter(const Work& work);

 private:
  struct Turns;
  bool give_turn(const Work& work, const Turns& turns, std::uint64_t turn);
  bool reduce_turn(const Work& work, const Turns& turns, std::uint64_t turn);
  bool take_turn(const Work& work, const Turns& turns, std::uint64_t turn);
  void reduce_block(const Work& work, char* target, const Piece& piece, std::int64_t first,
                    std::int64_t count, std::uint64_t turn, std::int64_t place);

  Rings& rings_;
  std::vector<char> scratch_;
};

}  // namespace hora::collectives::shm
