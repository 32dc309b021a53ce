// SPDX-License-Identifier: Apache-2.0
// The receives of all rounds are posted at once, so that only the first round waits for the word of
// them. What is sent in a round tells of all rounds before, hence the wait between two.
#include "collectives/algorithms/barrier.h"

#include <cstddef>

namespace hora::collectives {

bool dissemination_barrier(Messages& messages, ErrorText& error) {
  const int size = messages.size();
  const int index = messages.index();
  // One byte to send and one for each round, since empty messages are never sent.
  constexpr int kMostRounds = 32;
  char* const token = messages.scratch(1 + kMostRounds);
  char* const heard = token + 1;
  std::vector<Transfer> receives;
  for (int distance = 1; distance < size; distance *= 2) {
    const int from = (index + size - distance) % size;
    receives.push_back(messages.post_receive(from, heard + receives.size(), 1));
  }
  std::vector<Transfer> sends;
  for (int distance = 1; distance < size; distance *= 2) {
    const Transfer& heard_now = receives[sends.size()];
    sends.push_back(messages.post_send((index + distance) % size, token, 1));
    if (!messages.wait(heard_now, error)) return false;
  }
  return messages.wait_all(sends, error);
}

}  // namespace hora::collectives
