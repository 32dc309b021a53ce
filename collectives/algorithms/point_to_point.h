// SPDX-License-Identifier: Apache-2.0
// Collectives made of messages between ranks, over any PeerLinks: which algorithm does an operation
// of which size. The algorithms know no sockets; their tests run over memory.
//
// All results are bit-equal on all ranks: every element is reduced in one order, whichever rank
// computes it. The functions block; an error names the peer.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/algorithms/allreduce.h"
#include "collectives/algorithms/messages.h"
#include "collectives/backend.h"
#include "collectives/types.h"

namespace hora::collectives {

// The ranks of a process set over the links of the world. One thread at a time uses it.
class PointToPoint {
 public:
  struct Options {
    // The same on all ranks. Only a power of two of ranks can halve.
    AllreduceBorders allreduce = {32 * 1024, 32 * 1024};
    // Messages are cut into segments of this size, in bytes, so that moving one overlaps with
    // reducing the one before.
    std::int64_t segment_bytes = 512 * 1024;
  };

  // `tag_base` (the set's id) keeps sets apart that share the links. `links` must outlive this
  // object.
  PointToPoint(PeerLinks& links, std::vector<std::int32_t> ranks, int index, std::uint32_t tag_base,
               Options options);

  int size() const { return messages_.size(); }
  int index() const { return messages_.index(); }

  // Reduces `count` elements in place.
  bool allreduce(void* data, std::int64_t count, hora_dtype dtype, hora_reduce_op op,
                 ErrorText& error);
  // `data` holds all counts together; on return this rank's part (at its offset) is reduced, and
  // the rest is undefined.
  bool reduce_scatter(void* data, const std::int64_t* counts, hora_dtype dtype, hora_reduce_op op,
                      ErrorText& error);
  // `data` has room for all parts, with this rank's own already in place. Sizes are in bytes.
  bool allgather(void* data, const std::int64_t* bytes, ErrorText& error);
  bool broadcast(void* data, std::int64_t bytes, int root, ErrorText& error);
  bool alltoall(const void* input, const std::int64_t* send_bytes, void* output,
                const std::int64_t* receive_bytes, ErrorText& error);
  bool barrier(ErrorText& error);

  // Ends all transfers after an exception, so that nothing touches their memory any more.
  void give_up() noexcept { messages_.give_up(); }

 private:
  Messages messages_;
  Options options_;
};

}  // namespace hora::collectives
