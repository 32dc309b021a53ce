// SPDX-License-Identifier: Apache-2.0
#include "collectives/algorithms/allreduce.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <vector>

namespace hora::collectives {

// All receives are posted first. Complete shares are received where this rank's operands for their
// owners lie: such a share is complete only when its owner has received them.

namespace {

// With the rank at one distance. Halves are in elements.
struct Halving {
  int peer = 0;
  Stretch kept;
  Stretch given;
};

// The nearest first: the order in which doubling combines the operands.
std::vector<Halving> exchanges_of(int index, int size, std::int64_t count) {
  std::vector<Halving> exchanges;
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
  const std::vector<Halving> exchanges = exchanges_of(index, messages.size(), count);
  // Odd halves are rounded up, so together they may have more elements than the tensor.
  std::int64_t kept_in_all = 0;
  for (const Halving& each : exchanges) kept_in_all += each.kept.count;
  char* const scratch = messages.scratch(kept_in_all * width);
  char* operand = scratch;
  std::vector<Transfer> operands;
  for (const Halving& each : exchanges) {
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
  // This rank does not need the half that it gives away, and the peer's half is received in a
  // buffer.
  for (std::size_t i = 0; i < exchanges.size(); ++i) {
    const auto& [peer, kept, given] = exchanges[i];
    send(peer, given);
    if (!messages.wait(operands[i], error)) return false;
    char* const mine = data + kept.begin * width;
    const bool left = index < peer;
    reduction.function(mine, left ? mine : operand, left ? operand : mine, kept.count);
    operand += kept.count * width;
  }
  // The same way back: the half that this rank kept in an exchange is complete once all later
  // exchanges have come back.
  for (std::size_t i = 0; i < exchanges.size(); ++i) {
    const Halving& back = exchanges[exchanges.size() - 1 - i];
    send(back.peer, back.kept);
    if (!messages.wait(shares[i], error)) return false;
  }
  return messages.wait_all(sends, error);
}

// The ranks beyond the largest power of two give their data to a partner and get the result back.
// The lower rank's operand is always on the left, so both partners compute the same bits.

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
  // Later data of a peer finds its receive posted, and need not wait for an announcement.
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

// All segments of all hops, in the order of their arrival: one loop serves the whole ring. After
// its own first part, a rank sends what has arrived, in the same order, but for the last hop.
// Receives of complete parts are posted while the same memory must still be reduced and sent. That
// is safe: a segment is complete only when every rank has added its own, so this rank's has been
// received by its neighbour before the complete one can come.

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
      // order, starting after the rank that ends up with it.
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

// The speeds of link and kernels are guesses: a border that is off by a factor costs some ten
// percent of the operations near to it, and one that ranks do not agree on costs the job.

namespace {

// Ranks in one machine room. Measurements there say more about their schedulers than about the
// link, and jobs must get the same bits again.
constexpr std::chrono::microseconds kNear{200};
constexpr std::int64_t kLeast = 32 * 1024;  // where doubling ends there
// From here on a message takes several windows of TCP, and so several round trips.
constexpr std::int64_t kMost = 2 * 1024 * 1024;

constexpr double kLinkBytesPerUs = 312;     // 2.5 Gbit/s
constexpr double kKernelBytesPerUs = 5000;  // doubling does not reduce while it moves

}  // namespace

AllreduceBorders allreduce_borders(int ranks, std::chrono::microseconds round_trip) {
  if (ranks < 2) return {kLeast, kLeast};
  const bool power_of_two = std::has_single_bit(static_cast<unsigned>(ranks));
  const bool halves = power_of_two && ranks > 2;
  const std::int64_t least_ring = (power_of_two ? kPairwise : kPairwiseUneven) + 1;
  if (round_trip < kNear) return {halves ? kLeast : least_ring, least_ring};
  const auto doublings = static_cast<int>(std::bit_width(static_cast<unsigned>(ranks - 1)));
  const double hops = 2.0 * (ranks - 1);
  // The size at which doubling takes as long as an algorithm that waits that often for the link.
  const auto doubling_until = [&](double waits, std::int64_t least) {
    const double saved_us = (waits - doublings) * static_cast<double>(round_trip.count()) / 2;
    const double lost_us_per_byte =
        (doublings - hops / ranks) / kLinkBytesPerUs + doublings / kKernelBytesPerUs;
    const double bytes = std::min(saved_us / lost_us_per_byte, static_cast<double>(kMost));
    return std::max(static_cast<std::int64_t>(bytes), least);
  };
  if (halves) return {doubling_until(2.0 * doublings, kLeast), kMost};
  const std::int64_t ring_from = doubling_until(hops, least_ring);
  return {ring_from, ring_from};
}

}  // namespace hora::collectives
