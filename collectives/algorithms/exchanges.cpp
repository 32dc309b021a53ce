// SPDX-License-Identifier: Apache-2.0
#include "collectives/algorithms/exchanges.h"

#include <cstddef>
#include <cstring>

#include "collectives/algorithms/allreduce.h"
#include "collectives/types.h"

namespace hora::collectives {

// The receives of all rounds are posted at once, so that only the first round waits for their
// announcement. A message of one round covers all rounds before, hence the wait between two.

bool dissemination_barrier(Messages& messages, ErrorText& error) {
  const int size = messages.size();
  const int index = messages.index();
  // One byte to send and one for each round, since empty messages are never sent.
  constexpr int kMostRounds = 32;
  char* const token = messages.scratch(1 + kMostRounds);
  char* const received = token + 1;
  std::vector<Transfer> receives;
  for (int distance = 1; distance < size; distance *= 2) {
    const int from = (index + size - distance) % size;
    receives.push_back(messages.post_receive(from, received + receives.size(), 1));
  }
  std::vector<Transfer> sends;
  for (int distance = 1; distance < size; distance *= 2) {
    const Transfer& received_now = receives[sends.size()];
    sends.push_back(messages.post_send((index + distance) % size, token, 1));
    if (!messages.wait(received_now, error)) return false;
  }
  return messages.wait_all(sends, error);
}

// A rank posts all that it sends before it waits: the ranks below it then need not wait for the
// word of each other's receive.

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

// At each distance all ranks send to different ranks, so none is flooded. Several distances are
// under way at a time, as long as at most kPostedAhead can arrive.

bool all_to_all(Messages& messages, const char* input, const std::int64_t* send_bytes, char* output,
                const std::int64_t* receive_bytes, ErrorText& error) {
  const int size = messages.size();
  const int index = messages.index();
  const Offsets from = offsets_of(send_bytes, size, 1);
  const Offsets to = offsets_of(receive_bytes, size, 1);
  const auto source = [&](int rank) { return input + from[static_cast<std::size_t>(rank)]; };
  const auto target = [&](int rank) { return output + to[static_cast<std::size_t>(rank)]; };
  // The own part needs no message.
  if (send_bytes[index] > 0) {
    std::memmove(target(index), source(index), static_cast<std::size_t>(send_bytes[index]));
  }
  struct Exchange {
    Transfer in;
    Transfer out;
    std::int64_t bytes;  // that it adds to what is under way
  };
  std::vector<Exchange> exchanges;
  std::int64_t under_way = 0;
  std::size_t done = 0;
  const auto wait_for_next = [&] {
    const Exchange& next = exchanges[done++];
    under_way -= next.bytes;
    return messages.wait(next.in, error) && messages.wait(next.out, error);
  };
  for (int distance = 1; distance < size; ++distance) {
    const int receiver = (index + distance) % size;
    const int sender = (index + size - distance) % size;
    const std::int64_t bytes = send_bytes[receiver] + receive_bytes[sender];
    // The oldest first: all ranks go through the distances in the same order, so it is the next to
    // end. A single exchange may be larger than all that may be under way.
    while (done < exchanges.size() && under_way + bytes > kPostedAhead) {
      if (!wait_for_next()) return false;
    }
    const Transfer in = messages.post_receive(sender, target(sender), receive_bytes[sender]);
    exchanges.push_back(
        {in, messages.post_send(receiver, source(receiver), send_bytes[receiver]), bytes});
    under_way += bytes;
  }
  while (done < exchanges.size()) {
    if (!wait_for_next()) return false;
  }
  return true;
}

}  // namespace hora::collectives
