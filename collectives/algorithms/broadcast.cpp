// SPDX-License-Identifier: Apache-2.0
// A rank posts all that it sends before it waits: the ranks below it then need not wait for the
// word of each other's receive.
#include "collectives/algorithms/broadcast.h"

#include <cstddef>

#include "collectives/algorithms/ring.h"
#include "collectives/types.h"

namespace hora::collectives {

bool tree_broadcast(Messages& messages, char* data, std::int64_t bytes, int root,
                    ErrorText& error) {
  const int size = messages.size();
  const int relative = (messages.index() - root + size) % size;  // the root is 0
  const auto rank_at = [&](int place) { return (place + root) % size; };
  int distance = 1;
  // The lowest set bit of the relative index leads to the parent.
  while (distance < size && (relative & distance) == 0) distance *= 2;
  if (relative != 0 && !messages.receive(rank_at(relative - distance), data, bytes, error)) {
    return false;
  }
  // The children are at the distances below it, the largest subtree first.
  std::vector<Transfer> sends;
  for (distance /= 2; distance > 0; distance /= 2) {
    if (relative + distance >= size) continue;
    sends.push_back(messages.post_send(rank_at(relative + distance), data, bytes));
  }
  return messages.wait_all(sends, error);
}

bool scattered_broadcast(Messages& messages, char* data, std::int64_t bytes, int root,
                         std::int64_t segment_bytes, ErrorText& error) {
  const int size = messages.size();
  const std::vector<std::int64_t> counts = even_rows(bytes, size);
  const Offsets offsets = offsets_of(counts.data(), size, 1);
  const auto part = [&](int rank) { return data + offsets[static_cast<std::size_t>(rank)]; };
  const auto length = [&](int rank) { return counts[static_cast<std::size_t>(rank)]; };
  const int index = messages.index();
  // The root scatters the parts, and the ring gathers them on all ranks.
  std::vector<Transfer> sends;
  if (index != root) {
    if (!messages.receive(root, part(index), length(index), error)) return false;
  } else {
    for (int rank = 0; rank < size; ++rank) {
      if (rank != root) sends.push_back(messages.post_send(rank, part(rank), length(rank)));
    }
  }
  return messages.wait_all(sends, error) &&
         ring_allgather(messages, data, offsets, segment_bytes, error);
}

}  // namespace hora::collectives
