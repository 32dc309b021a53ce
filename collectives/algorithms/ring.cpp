// SPDX-License-Identifier: Apache-2.0
// All segments of all hops, in the order of their arrival: one loop serves the whole ring. What a
// rank sends after its own first part is what has arrived, in the same order, but for the last hop.
//
// Receives of complete parts are posted while the same memory is still to be reduced and sent. That
// is safe: a segment is complete only when every rank has added its own, so this rank's has been
// received by its neighbour before the complete one can come.
#include "collectives/algorithms/ring.h"

#include <algorithm>
#include <cstddef>

namespace hora::collectives {

namespace {

// However long the segments are, so that receiving, reducing and sending overlap.
constexpr std::int64_t kLeastPosted = 4;

// In a hop, every rank gets a part from its left neighbour.
struct Hop {
  int part = 0;             // may lie beyond the ranks, see segments_of()
  bool is_operand = false;  // to be reduced; otherwise it is complete
};

// The rank's part `first` arrives first, and then those of the ranks before.
void add_hops(std::vector<Hop>& hops, int first, int size, bool are_operands) {
  for (int hop = 0; hop < size - 1; ++hop) hops.push_back({first - hop, are_operands});
}

struct Arrival {
  RingSegment segment;
  bool is_operand = false;
  bool passed_on = false;
};

// Sends the rank's part `first` and receives those of the hops. `reduction` is for operands.
bool pass_around(Messages& messages, char* data, const Offsets& offsets, int first,
                 const std::vector<Hop>& hops, const Reduction* reduction,
                 std::int64_t segment_bytes, ErrorText& error) {
  const int right = (messages.index() + 1) % messages.size();
  const int left = (messages.index() + messages.size() - 1) % messages.size();
  segment_bytes = std::max<std::int64_t>(segment_bytes / 64 * 64, 64);  // whole elements
  std::vector<Arrival> arrivals;
  std::size_t operands = 0;
  std::int64_t longest = 64;
  for (const Hop& hop : hops) {
    for (const RingSegment& segment : segments_of(offsets, hop.part, segment_bytes)) {
      arrivals.push_back({segment, hop.is_operand, &hop != &hops.back()});
      operands += hop.is_operand ? 1 : 0;
      longest = std::max(longest, (segment.bytes + 63) / 64 * 64);
    }
  }
  const auto ahead = static_cast<std::size_t>(std::max(kLeastPosted, kPostedAhead / longest));
  // Operands come first, each into a buffer that is free again once it is reduced.
  const std::size_t buffers = std::min(ahead, operands);
  char* const memory = messages.scratch(static_cast<std::int64_t>(buffers) * longest);
  const auto buffer = [&](std::size_t i) {
    return memory + static_cast<std::int64_t>(i % ahead) * longest;
  };
  std::vector<Transfer> receives;
  const auto post_next = [&] {
    if (receives.size() == arrivals.size()) return;
    const Arrival& next = arrivals[receives.size()];
    char* const place = next.is_operand ? buffer(receives.size()) : data + next.segment.offset;
    receives.push_back(messages.post_receive(left, place, next.segment.bytes));
  };
  std::vector<Transfer> sends;
  const auto send = [&](const RingSegment& segment) {
    sends.push_back(messages.post_send(right, data + segment.offset, segment.bytes));
  };
  // Before anything is sent: the left neighbour has the word of as many receives as the link can
  // carry at a time, and never waits for the next.
  for (std::size_t i = 0; i < ahead && i < arrivals.size(); ++i) post_next();
  for (const RingSegment& segment : segments_of(offsets, first, segment_bytes)) send(segment);
  for (std::size_t i = 0; i < arrivals.size(); ++i) {
    const Arrival& arrival = arrivals[i];
    if (!messages.wait(receives[i], error)) return false;
    if (arrival.is_operand) {
      char* const mine = data + arrival.segment.offset;
      // The partial result from the left is the left operand: every element is reduced in ring
      // order, starting behind the rank that ends up with it.
      reduction->function(mine, buffer(i), mine, arrival.segment.bytes / reduction->element_bytes);
    }
    post_next();  // the buffer is free only now
    if (arrival.passed_on) send(arrival.segment);
  }
  return messages.wait_all(sends, error);
}

}  // namespace

bool ring_allreduce(Messages& messages, char* data, const Offsets& offsets,
                    const Reduction& reduction, std::int64_t segment_bytes, ErrorText& error) {
  const int index = messages.index();
  std::vector<Hop> hops;
  add_hops(hops, index - 2, messages.size(), true);
  add_hops(hops, index - 1, messages.size(), false);
  return pass_around(messages, data, offsets, index - 1, hops, &reduction, segment_bytes, error);
}

bool ring_reduce_scatter(Messages& messages, char* data, const Offsets& offsets,
                         const Reduction& reduction, std::int64_t segment_bytes, ErrorText& error) {
  const int index = messages.index();
  std::vector<Hop> hops;
  add_hops(hops, index - 2, messages.size(), true);
  return pass_around(messages, data, offsets, index - 1, hops, &reduction, segment_bytes, error);
}

bool ring_allgather(Messages& messages, char* data, const Offsets& offsets,
                    std::int64_t segment_bytes, ErrorText& error) {
  const int index = messages.index();
  std::vector<Hop> hops;
  add_hops(hops, index - 1, messages.size(), false);
  return pass_around(messages, data, offsets, index, hops, nullptr, segment_bytes, error);
}

}  // namespace hora::collectives
