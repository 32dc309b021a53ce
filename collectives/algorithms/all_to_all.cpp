// SPDX-License-Identifier: Apache-2.0
// At each distance all ranks send to different ranks, so none is flooded. Several distances are
// under way at a time, as long as what comes is no more than kPostedAhead.
#include "collectives/algorithms/all_to_all.h"

#include <cstring>

#include "collectives/algorithms/parts.h"

namespace hora::collectives {

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
