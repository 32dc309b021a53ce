// Collectives made of messages between ranks, over any PeerLinks. No knowledge of sockets; tested
// over memory.
//
// All results are bit-equal on all ranks: every element is reduced in one order, whoever computes
// it. Blocking; errors name the peer.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/backends/backend.h"
#include "collectives/kernels/kernels.h"

namespace hora::collectives {

// The ranks of a process set over a links of the world. Owned by one thread at a time.
class PointToPoint {
 public:
  struct Options {
    // Up to this size an allreduce is done by recursive doubling (few messages), above by a ring
    // (each byte moves twice). Equal on all ranks.
    std::int64_t ring_from_bytes = 32 * 1024;
    // Messages are cut so that moving one part overlaps with reducing the part before.
    std::int64_t segment_bytes = 512 * 1024;
  };

  // `tag_base` keeps the sets that share a links apart (the set's id).
  PointToPoint(PeerLinks& links, std::vector<std::int32_t> ranks, int index, std::uint32_t tag_base,
               Options options);

  int size() const { return static_cast<int>(ranks_.size()); }
  int index() const { return index_; }

  // In place, `count` elements.
  bool allreduce(void* data, std::int64_t count, hora_dtype dtype, hora_reduce_op op,
                 ErrorText& error);
  // data: all counts together; on return this rank's part of it (at its offset) is reduced, the
  // rest is undefined.
  bool reduce_scatter(void* data, const std::int64_t* counts, hora_dtype dtype, hora_reduce_op op,
                      ErrorText& error);
  // data: room for all parts, this rank's own in its place already. Bytes.
  bool allgather(void* data, const std::int64_t* bytes, ErrorText& error);
  bool broadcast(void* data, std::int64_t bytes, int root, ErrorText& error);
  bool alltoall(const void* input, const std::int64_t* send_bytes, void* output,
                const std::int64_t* receive_bytes, ErrorText& error);
  bool barrier(ErrorText& error);

  // After an exception: nothing touches the memory of what it interrupted any more.
  void give_up() noexcept;

 private:
  struct Reduction {
    hora_dtype dtype;
    ReduceFunction function;
    std::int64_t element_bytes;
  };

  bool reduce_doubling(char* data, std::int64_t count, const Reduction& reduction,
                       ErrorText& error);
  bool ring_reduce(char* data, const std::vector<std::int64_t>& offsets, const Reduction& reduction,
                   ErrorText& error);
  bool ring_gather(char* data, const std::vector<std::int64_t>& offsets, ErrorText& error);
  bool exchange(int send_to, const void* send, std::int64_t send_bytes, int receive_from,
                void* receive, std::int64_t receive_bytes, ErrorText& error);
  bool send(int to, const void* data, std::int64_t bytes, ErrorText& error);
  bool receive(int from, void* data, std::int64_t bytes, ErrorText& error);
  bool wait(PeerLinks::Ticket ticket, const char* doing, int peer, ErrorText& error);
  // Whether the last send could be posted: else the next wait would tell that of another peer.
  bool sent(const std::vector<PeerLinks::Ticket>& sends, int peer, ErrorText& error);
  char* scratch(std::int64_t bytes);

  PeerLinks& links_;
  std::vector<std::int32_t> ranks_;
  int index_;
  std::uint64_t tag_base_;
  Options options_;
  // Messages from each rank to each other one are numbered: [from or to] by set index.
  std::vector<std::uint64_t> sent_;
  std::vector<std::uint64_t> received_;
  std::vector<char> scratch_;
};

}  // namespace hora::collectives
