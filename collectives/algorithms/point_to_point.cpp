// SPDX-License-Identifier: Apache-2.0
// Both sides of a transfer number their messages to each other, and the number is the tag; so they
// agree on tags without talking, as long as all ranks run the same operations in the same order.
// Empty messages are never sent: both sides know the sizes.
#include "collectives/algorithms/point_to_point.h"

#include <algorithm>
#include <cstring>

namespace hora::collectives {

namespace {

// A stretch of bytes that travels as one message.
struct Segment {
  std::int64_t offset;
  std::int64_t bytes;
};

std::vector<Segment> cut(std::int64_t offset, std::int64_t bytes, std::int64_t most) {
  std::vector<Segment> segments;
  for (std::int64_t done = 0; done < bytes; done += most) {
    segments.push_back({offset + done, std::min(most, bytes - done)});
  }
  return segments;
}

// Where each rank's part begins, in bytes, and after them the end of the last.
std::vector<std::int64_t> offsets_of(const std::int64_t* sizes, int count, std::int64_t unit) {
  std::vector<std::int64_t> offsets(static_cast<std::size_t>(count) + 1, 0);
  for (int i = 0; i < count; ++i) {
    const auto at = static_cast<std::size_t>(i);
    offsets[at + 1] = offsets[at] + sizes[i] * unit;
  }
  return offsets;
}

}  // namespace

PointToPoint::PointToPoint(PeerLinks& links, std::vector<std::int32_t> ranks, int index,
                           std::uint32_t tag_base, Options options)
    : links_(links),
      ranks_(std::move(ranks)),
      index_(index),
      tag_base_(static_cast<std::uint64_t>(tag_base) << 40),
      options_(options),
      sent_(ranks_.size(), 0),
      received_(ranks_.size(), 0) {}

char* PointToPoint::scratch(std::int64_t bytes) {
  if (static_cast<std::int64_t>(scratch_.size()) < bytes) {
    scratch_.resize(static_cast<std::size_t>(bytes));
  }
  return scratch_.data();
}

bool PointToPoint::wait(PeerLinks::Ticket ticket, const char* doing, int peer, ErrorText& error) {
  ErrorText reason;
  if (links_.wait(ticket, reason)) return true;
  // Keep whether the failure began here: the caller's text replaces only the words.
  error.own = reason.own;
  return error.set("%s rank %d: %s", doing, ranks_[static_cast<std::size_t>(peer)], reason.text);
}

bool PointToPoint::sent(const std::vector<PeerLinks::Ticket>& sends, int peer, ErrorText& error) {
  return sends.empty() || sends.back() != 0 || wait(0, "sending to", peer, error);
}

void PointToPoint::give_up() noexcept {
  ErrorText ignored;
  // Waiting for ticket 0 fails, and a failure ends all transfers (backend.h).
  links_.wait(0, ignored);
}

bool PointToPoint::exchange(int send_to, const void* send, std::int64_t send_bytes,
                            int receive_from, void* receive, std::int64_t receive_bytes,
                            ErrorText& error) {
  const auto to = static_cast<std::size_t>(send_to);
  const auto from = static_cast<std::size_t>(receive_from);
  // Post the receive first: the peer's data then needs no buffer in between.
  PeerLinks::Ticket in = 0;
  PeerLinks::Ticket out = 0;
  if (receive_bytes > 0) {
    in = links_.post_receive(ranks_[from], tag_base_ | received_[from]++, receive,
                             static_cast<std::size_t>(receive_bytes));
  }
  if (send_bytes > 0) {
    out = links_.post_send(ranks_[to], tag_base_ | sent_[to]++, send,
                           static_cast<std::size_t>(send_bytes));
  }
  // The next wait reports a failed post, whatever it waits for: so wait for the failed one first.
  if (send_bytes > 0 && out == 0) return wait(out, "sending to", send_to, error);
  if (receive_bytes > 0 && !wait(in, "receiving from", receive_from, error)) return false;
  return send_bytes == 0 || wait(out, "sending to", send_to, error);
}

// A one-sided exchange: a size of 0 stands for "no message" in that direction.
bool PointToPoint::send(int to, const void* data, std::int64_t bytes, ErrorText& error) {
  return exchange(to, data, bytes, to, nullptr, 0, error);
}

bool PointToPoint::receive(int from, void* data, std::int64_t bytes, ErrorText& error) {
  return exchange(from, nullptr, 0, from, data, bytes, error);
}

bool PointToPoint::allreduce(void* data, std::int64_t count, hora_dtype dtype, hora_reduce_op op,
                             ErrorText& error) {
  // All ranks agree on the count, so all of them leave here.
  if (size() == 1 || count == 0) return true;
  const Reduction reduction{dtype, reduce_function(dtype, op),
                            static_cast<std::int64_t>(dtype_bytes(dtype))};
  auto* bytes = static_cast<char*>(data);
  if (count * reduction.element_bytes < options_.ring_from_bytes) {
    return reduce_doubling(bytes, count, reduction, error);
  }
  // A ring allreduce is a reduce-scatter followed by an allgather of the parts.
  const std::vector<std::int64_t> counts = even_rows(count, size());
  const auto offsets = offsets_of(counts.data(), size(), reduction.element_bytes);
  return ring_reduce(bytes, offsets, reduction, error) && ring_gather(bytes, offsets, error);
}

bool PointToPoint::reduce_scatter(void* data, const std::int64_t* counts, hora_dtype dtype,
                                  hora_reduce_op op, ErrorText& error) {
  if (size() == 1) return true;
  const Reduction reduction{dtype, reduce_function(dtype, op),
                            static_cast<std::int64_t>(dtype_bytes(dtype))};
  const auto offsets = offsets_of(counts, size(), reduction.element_bytes);
  return ring_reduce(static_cast<char*>(data), offsets, reduction, error);
}

bool PointToPoint::allgather(void* data, const std::int64_t* bytes, ErrorText& error) {
  if (size() == 1) return true;
  return ring_gather(static_cast<char*>(data), offsets_of(bytes, size(), 1), error);
}

// Recursive doubling. The ranks beyond the largest power of two lend their data to a partner and
// get the result back. The lower rank's operand is always on the left, so both partners compute the
// same bits.
bool PointToPoint::reduce_doubling(char* data, std::int64_t count, const Reduction& reduction,
                                   ErrorText& error) {
  const std::int64_t bytes = count * reduction.element_bytes;
  int power = 1;
  while (power * 2 <= size()) power *= 2;
  const int extra = size() - power;
  // A lender takes no part in the doubling and waits for the result.
  if (index_ >= power) {
    return send(index_ - power, data, bytes, error) && receive(index_ - power, data, bytes, error);
  }
  char* theirs = scratch(bytes);
  if (index_ < extra) {
    if (!receive(index_ + power, theirs, bytes, error)) return false;
    // The lender has the higher index, so its operand is the right one.
    reduction.function(data, data, theirs, count);
  }
  for (int distance = 1; distance < power; distance *= 2) {
    const int peer = index_ ^ distance;
    if (!exchange(peer, data, bytes, peer, theirs, bytes, error)) return false;
    const bool mine_is_left = index_ < peer;
    reduction.function(data, mine_is_left ? data : theirs, mine_is_left ? theirs : data, count);
  }
  // Only the first `extra` ranks have borrowed.
  if (index_ >= extra) return true;
  return send(index_ + power, data, bytes, error);
}

// Every rank passes a part to its right neighbour, which adds its own and passes it on; after size
// - 1 hops part i is complete on rank i. A segment moves on as soon as it is reduced.
bool PointToPoint::ring_reduce(char* data, const std::vector<std::int64_t>& offsets,
                               const Reduction& reduction, ErrorText& error) {
  // How many receives are posted ahead; each needs a buffer of one segment.
  constexpr std::size_t kWindow = 4;
  const int n = size();
  const int right = (index_ + 1) % n;
  const int left = (index_ + n - 1) % n;
  const std::int64_t segment_bytes =
      std::max<std::int64_t>(options_.segment_bytes / 64 * 64, 64);  // whole elements
  const auto part = [&](int chunk) {
    const auto at = static_cast<std::size_t>((chunk % n + n) % n);
    return cut(offsets[at], offsets[at + 1] - offsets[at], segment_bytes);
  };
  std::vector<PeerLinks::Ticket> sends;
  const auto pass_on = [&](const Segment& segment) {
    sends.push_back(links_.post_send(ranks_[static_cast<std::size_t>(right)],
                                     tag_base_ | sent_[static_cast<std::size_t>(right)]++,
                                     data + segment.offset,
                                     static_cast<std::size_t>(segment.bytes)));
  };
  // All segments of all hops in the order of their arrival: one loop then serves the whole ring.
  std::vector<Segment> incoming;
  std::vector<bool> last_hop;
  for (int hop = 0; hop < n - 1; ++hop) {
    for (const Segment& segment : part(index_ - hop - 2)) {
      incoming.push_back(segment);
      last_hop.push_back(hop == n - 2);
    }
  }
  char* const buffers = scratch(static_cast<std::int64_t>(kWindow) * segment_bytes);
  PeerLinks::Ticket receives[kWindow] = {};
  const auto post = [&](std::size_t i) {
    receives[i % kWindow] =
        links_.post_receive(ranks_[static_cast<std::size_t>(left)],
                            tag_base_ | received_[static_cast<std::size_t>(left)]++,
                            buffers + static_cast<std::int64_t>(i % kWindow) * segment_bytes,
                            static_cast<std::size_t>(incoming[i].bytes));
  };
  for (std::size_t i = 0; i < incoming.size() && i < kWindow; ++i) post(i);
  for (const Segment& segment : part(index_ - 1)) pass_on(segment);
  bool good = true;
  for (std::size_t i = 0; i < incoming.size() && good; ++i) {
    good = sent(sends, right, error) && wait(receives[i % kWindow], "receiving from", left, error);
    if (!good) break;
    char* mine = data + incoming[i].offset;
    // The partial result from the left is the left operand: every element is reduced in ring order,
    // starting behind the rank that ends up with it.
    reduction.function(mine, buffers + static_cast<std::int64_t>(i % kWindow) * segment_bytes, mine,
                       incoming[i].bytes / reduction.element_bytes);
    // The buffer is free only now, after the reduction.
    if (i + kWindow < incoming.size()) post(i + kWindow);
    if (!last_hop[i]) pass_on(incoming[i]);
  }
  for (PeerLinks::Ticket ticket : sends) good = good && wait(ticket, "sending to", right, error);
  return good;
}

// Every rank passes what it has to its right neighbour, size - 1 times. Segments land in their
// final place, so all receives can be posted at once.
bool PointToPoint::ring_gather(char* data, const std::vector<std::int64_t>& offsets,
                               ErrorText& error) {
  const int n = size();
  const auto right = static_cast<std::size_t>((index_ + 1) % n);
  const auto left = static_cast<std::size_t>((index_ + n - 1) % n);
  const auto part = [&](int chunk) {
    const auto at = static_cast<std::size_t>((chunk % n + n) % n);
    return cut(offsets[at], offsets[at + 1] - offsets[at], options_.segment_bytes);
  };
  std::vector<PeerLinks::Ticket> sends;
  const auto pass_on = [&](const Segment& segment) {
    sends.push_back(links_.post_send(ranks_[right], tag_base_ | sent_[right]++,
                                     data + segment.offset,
                                     static_cast<std::size_t>(segment.bytes)));
  };
  struct Incoming {
    Segment segment;
    bool forward;
    PeerLinks::Ticket ticket;
  };
  std::vector<Incoming> incoming;
  for (int hop = 0; hop < n - 1; ++hop) {
    for (const Segment& segment : part(index_ - hop - 1)) {
      incoming.push_back(
          {segment, hop < n - 2,
           links_.post_receive(ranks_[left], tag_base_ | received_[left]++, data + segment.offset,
                               static_cast<std::size_t>(segment.bytes))});
    }
  }
  for (const Segment& segment : part(index_)) pass_on(segment);
  bool good = true;
  for (const Incoming& each : incoming) {
    good = good && sent(sends, static_cast<int>(right), error) &&
           wait(each.ticket, "receiving from", static_cast<int>(left), error);
    if (good && each.forward) pass_on(each.segment);
  }
  for (PeerLinks::Ticket ticket : sends) {
    good = good && wait(ticket, "sending to", static_cast<int>(right), error);
  }
  return good;
}

bool PointToPoint::broadcast(void* data, std::int64_t bytes, int root, ErrorText& error) {
  if (size() == 1 || bytes == 0) return true;
  const int n = size();
  auto* start = static_cast<char*>(data);
  // From here on a tree would make the root send every byte several times.
  constexpr std::int64_t kScatterFrom = 1 << 20;
  if (bytes >= kScatterFrom && n > 2) {  // the root sends each byte once; the ring does the rest
    const std::vector<std::int64_t> counts = even_rows(bytes, n);
    const auto offsets = offsets_of(counts.data(), n, 1);
    const auto mine = static_cast<std::size_t>(index_);
    // The root scatters the parts; the ring then gathers them on all ranks.
    if (index_ != root) {
      if (!receive(root, start + offsets[mine], counts[mine], error)) return false;
    } else {
      for (int peer = 0; peer < n; ++peer) {
        const auto at = static_cast<std::size_t>(peer);
        if (peer != root && !send(peer, start + offsets[at], counts[at], error)) return false;
      }
    }
    return ring_gather(start, offsets, error);
  }
  const int relative = (index_ - root + n) % n;  // a binomial tree whose root is 0
  int distance = 1;
  // The lowest set bit of the relative index leads to the parent.
  for (; distance < n; distance *= 2) {
    if ((relative & distance) == 0) continue;
    if (!receive((relative - distance + root) % n, data, bytes, error)) return false;
    break;
  }
  // The children are at the distances below it, the largest subtree first.
  for (distance /= 2; distance > 0; distance /= 2) {
    if (relative + distance >= n) continue;
    if (!send((relative + distance + root) % n, data, bytes, error)) return false;
  }
  return true;
}

bool PointToPoint::alltoall(const void* input, const std::int64_t* send_bytes, void* output,
                            const std::int64_t* receive_bytes, ErrorText& error) {
  const int n = size();
  const auto from = offsets_of(send_bytes, n, 1);
  const auto to = offsets_of(receive_bytes, n, 1);
  const auto* source = static_cast<const char*>(input);
  auto* target = static_cast<char*>(output);
  const auto mine = static_cast<std::size_t>(index_);
  // The own part needs no message.
  if (send_bytes[index_] > 0) {
    std::memmove(target + to[mine], source + from[mine],
                 static_cast<std::size_t>(send_bytes[index_]));
  }
  for (int distance = 1; distance < n; ++distance) {
    // At each distance all ranks send to different ranks, so none is flooded.
    const int receiver = (index_ + distance) % n;
    const int sender = (index_ + n - distance) % n;
    if (!exchange(receiver, source + from[static_cast<std::size_t>(receiver)], send_bytes[receiver],
                  sender, target + to[static_cast<std::size_t>(sender)], receive_bytes[sender],
                  error)) {
      return false;
    }
  }
  return true;
}

bool PointToPoint::barrier(ErrorText& error) {
  // One byte, since empty messages are never sent.
  char token = 0;
  char received = 0;
  // Dissemination: after round k a rank has heard, directly or not, from 2^(k+1) ranks.
  for (int distance = 1; distance < size(); distance *= 2) {
    const int to = (index_ + distance) % size();
    const int from = (index_ + size() - distance) % size();
    if (!exchange(to, &token, 1, from, &received, 1, error)) return false;
  }
  return true;
}

}  // namespace hora::collectives
