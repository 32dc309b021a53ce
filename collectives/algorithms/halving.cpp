// SPDX-License-Identifier: Apache-2.0
// All receives are posted first. Those of complete shares go to where this rank's operands for
// their owners lie: such a share is complete only when its owner has received them.
#include "collectives/algorithms/halving.h"

#include <vector>

#include "collectives/algorithms/parts.h"

namespace hora::collectives {

namespace {

// With the rank at one distance. Halves are in elements.
struct Exchange {
  int peer = 0;
  Stretch kept;
  Stretch given;
};

// The nearest first: the order in which doubling combines the operands.
std::vector<Exchange> exchanges_of(int index, int size, std::int64_t count) {
  std::vector<Exchange> exchanges;
  Stretch left{0, count};
  for (int distance = 1; distance < size; distance *= 2) {
    const bool upper = (index & distance) != 0;
    exchanges.push_back({index ^ distance, half_of(left, upper), half_of(left, !upper)});
    left = exchanges.back().kept;
  }
  return exchanges;
}

}  // namespace

bool halving_allreduce(Messages& messages, char* data, std::int64_t count,
                       const Reduction& reduction, ErrorText& error) {
  const int index = messages.index();
  const std::int64_t width = reduction.element_bytes;
  const std::vector<Exchange> exchanges = exchanges_of(index, messages.size(), count);
  // Odd halves are rounded up, so together they may have more elements than the tensor.
  std::int64_t kept_in_all = 0;
  for (const Exchange& each : exchanges) kept_in_all += each.kept.count;
  char* const scratch = messages.scratch(kept_in_all * width);
  char* operand = scratch;
  std::vector<Transfer> operands;
  for (const Exchange& each : exchanges) {
    operands.push_back(messages.post_receive(each.peer, operand, each.kept.count * width));
    operand += each.kept.count * width;
  }
  std::vector<Transfer> shares;
  for (auto each = exchanges.rbegin(); each != exchanges.rend(); ++each) {
    shares.push_back(messages.post_receive(each->peer, data + each->given.begin * width,
                                           each->given.count * width));
  }
  std::vector<Transfer> sends;
  const auto send = [&](int peer, const Stretch& part) {
    sends.push_back(messages.post_send(peer, data + part.begin * width, part.count * width));
  };
  operand = scratch;
  // What it gives away, this rank needs no more, and the peer's half lands in a buffer.
  for (std::size_t i = 0; i < exchanges.size(); ++i) {
    const auto& [peer, kept, given] = exchanges[i];
    send(peer, given);
    if (!messages.wait(operands[i], error)) return false;
    char* const mine = data + kept.begin * width;
    const bool left = index < peer;
    reduction.function(mine, left ? mine : operand, left ? operand : mine, kept.count);
    operand += kept.count * width;
  }
  // By the same ways back: what this rank kept in an exchange is complete once all later exchanges
  // have come back.
  for (std::size_t i = 0; i < exchanges.size(); ++i) {
    const Exchange& back = exchanges[exchanges.size() - 1 - i];
    send(back.peer, back.kept);
    if (!messages.wait(shares[i], error)) return false;
  }
  return messages.wait_all(sends, error);
}

}  // namespace hora::collectives
