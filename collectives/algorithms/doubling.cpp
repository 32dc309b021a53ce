// SPDX-License-Identifier: Apache-2.0
// The ranks beyond the largest power of two lend their data to a partner and get the result back.
// The lower rank's operand is always on the left, so both partners compute the same bits.
#include "collectives/algorithms/doubling.h"

#include <algorithm>
#include <cstddef>

namespace hora::collectives {

namespace {

struct Exchange {
  int peer = 0;
  bool sends = true;
};

}  // namespace

bool doubling_allreduce(Messages& messages, char* data, std::int64_t count,
                        const Reduction& reduction, ErrorText& error) {
  const int index = messages.index();
  const std::int64_t bytes = count * reduction.element_bytes;
  int power = 1;
  while (power * 2 <= messages.size()) power *= 2;
  if (index >= power) {
    // A lender takes no part in the doubling. The result comes from what it has sent, so it cannot
    // come before that.
    const Transfer result = messages.post_receive(index - power, data, bytes);
    const Transfer loan = messages.post_send(index - power, data, bytes);
    return messages.wait(loan, error) && messages.wait(result, error);
  }
  const bool borrows = index + power < messages.size();
  std::vector<Exchange> exchanges;
  if (borrows) exchanges.push_back({index + power, false});
  for (int distance = 1; distance < power; distance *= 2) exchanges.push_back({index ^ distance});
  const auto ahead = static_cast<std::size_t>(std::clamp<std::int64_t>(
      kPostedAhead / bytes, 1, static_cast<std::int64_t>(exchanges.size())));
  char* const memory = messages.scratch(static_cast<std::int64_t>(ahead) * bytes);
  const auto buffer = [&](std::size_t i) {
    return memory + static_cast<std::int64_t>(i % ahead) * bytes;
  };
  std::vector<Transfer> receives;
  const auto post_next = [&] {
    const std::size_t i = receives.size();
    if (i == exchanges.size()) return;
    receives.push_back(messages.post_receive(exchanges[i].peer, buffer(i), bytes));
  };
  // What a peer sends later than now finds its receive there, and need not wait for the word of it.
  for (std::size_t i = 0; i < ahead; ++i) post_next();
  for (std::size_t i = 0; i < exchanges.size(); ++i) {
    const auto [peer, sends] = exchanges[i];
    const Transfer mine = sends ? messages.post_send(peer, data, bytes) : Transfer();
    // The data is overwritten once both have passed.
    if (!messages.wait(receives[i], error) || !messages.wait(mine, error)) return false;
    const char* const left = index < peer ? data : buffer(i);
    const char* const right = index < peer ? buffer(i) : data;
    reduction.function(data, left, right, count);
    post_next();
  }
  return !borrows || messages.send(index + power, data, bytes, error);
}

}  // namespace hora::collectives
