// Reductions over shared memory, chunk by chunk. Every element is reduced in the order of the set's
// indices, so all results are bit-equal, on all ranks and whatever the sizes.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/backends/shm/rings.h"
#include "collectives/backends/shm/work.h"

namespace hora::collectives::shm {

// The functions are false when the job is ending.
class Reductions {
 public:
  explicit Reductions(Rings& rings);

  // Everybody gives all and reduces all: one hand-over, and then each works for itself. For at most
  // small_bytes() of the rings.
  bool allreduce_small(const Work& work);
  // Everybody gives what the others reduce, reduces its own part, takes the others' parts: at most
  // `part_bytes` of each at a time.
  bool allreduce_in_turns(const Work& work, std::int64_t part_bytes);
  // Each turn brings a portion of every rank's part: everybody gives what the others reduce.
  bool reducescatter(const Work& work);

 private:
  void reduce_part(const Work& work, char* target, std::uint64_t turn, std::int64_t offset_bytes,
                   std::int64_t begin, std::int64_t end, bool to_outputs);

  Rings& rings_;
  std::vector<char> scratch_;
};

// Elements of [begin, begin + left) that each of `size` ranks reduces: equal, so that everybody has
// something to do, and whole lines of the cache.
struct Share {
  std::int64_t begin;
  std::int64_t end;
};
Share share_of(int rank, int size, std::int64_t begin, std::int64_t left, std::int64_t width);

}  // namespace hora::collectives::shm
