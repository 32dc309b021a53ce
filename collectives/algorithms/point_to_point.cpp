// SPDX-License-Identifier: Apache-2.0
// All ranks choose the algorithm of an operation from common facts: its size, how many ranks there
// are, and the options. A rank that chose for itself would wait for messages that are never sent.
#include "collectives/algorithms/point_to_point.h"

#include <utility>

#include "collectives/algorithms/allreduce.h"
#include "collectives/algorithms/exchanges.h"

namespace hora::collectives {

PointToPoint::PointToPoint(PeerLinks& links, std::vector<std::int32_t> ranks, int index,
                           std::uint32_t tag_base, Options options)
    : messages_(links, std::move(ranks), index, tag_base), options_(options) {}

bool PointToPoint::allreduce(void* data, std::int64_t count, hora_dtype dtype, hora_reduce_op op,
                             ErrorText& error) {
  // All ranks agree on the count, so all of them leave here.
  if (size() == 1 || count == 0) return true;
  const Reduction reduction(dtype, op);
  auto* const bytes = static_cast<char*>(data);
  const std::int64_t length = count * reduction.element_bytes;
  if (length < options_.allreduce.halving_from) {
    return doubling_allreduce(messages_, bytes, count, reduction, error);
  }
  if (length < options_.allreduce.ring_from) {
    return halving_allreduce(messages_, bytes, count, reduction, error);
  }
  // Parts of whole elements, as even as can be: the slowest rank has the largest.
  const std::vector<std::int64_t> counts = even_rows(count, size());
  const Offsets offsets = offsets_of(counts.data(), size(), reduction.element_bytes);
  return ring_allreduce(messages_, bytes, offsets, reduction, options_.segment_bytes, error);
}

bool PointToPoint::reduce_scatter(void* data, const std::int64_t* counts, hora_dtype dtype,
                                  hora_reduce_op op, ErrorText& error) {
  if (size() == 1) return true;
  const Reduction reduction(dtype, op);
  return ring_reduce_scatter(messages_, static_cast<char*>(data),
                             offsets_of(counts, size(), reduction.element_bytes), reduction,
                             options_.segment_bytes, error);
}

bool PointToPoint::allgather(void* data, const std::int64_t* bytes, ErrorText& error) {
  if (size() == 1) return true;
  return ring_allgather(messages_, static_cast<char*>(data), offsets_of(bytes, size(), 1),
                        options_.segment_bytes, error);
}

bool PointToPoint::broadcast(void* data, std::int64_t bytes, int root, ErrorText& error) {
  if (size() == 1 || bytes == 0) return true;
  auto* const start = static_cast<char*>(data);
  // From here on a tree would make the root send every byte several times.
  constexpr std::int64_t kScatterFrom = 1 << 20;
  if (bytes < kScatterFrom || size() == 2) {
    return tree_broadcast(messages_, start, bytes, root, error);
  }
  return scattered_broadcast(messages_, start, bytes, root, options_.segment_bytes, error);
}

bool PointToPoint::alltoall(const void* input, const std::int64_t* send_bytes, void* output,
                            const std::int64_t* receive_bytes, ErrorText& error) {
  return all_to_all(messages_, static_cast<const char*>(input), send_bytes,
                    static_cast<char*>(output), receive_bytes, error);
}

bool PointToPoint::barrier(ErrorText& error) { return dissemination_barrier(messages_, error); }

}  // namespace hora::collectives
