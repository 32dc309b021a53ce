// SPDX-License-Identifier: Apache-2.0
// The messages between this rank of a process set and the others, over the links of the world.
//
// Over a link with a delay, a message that comes before its receive was posted waits for the word
// of it, which takes as long again as the message itself. So the algorithms post receives long
// before they are due: kPostedAhead bytes of them, and at least a few.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "collectives/backend.h"

namespace hora::collectives {

// How much a rank lets its peers send before it needs it: what 10 Gbit/s carry in 6 ms.
inline constexpr std::int64_t kPostedAhead = INT64_C(8) << 20;

// One message under way.
struct Transfer {
  enum class Kind { kNone, kSend, kReceive };  // none: there was nothing to send

  Kind kind = Kind::kNone;
  int peer = 0;  // index in the set
  PeerLinks::Ticket ticket = 0;
};

class Messages {
 public:
  // `tag_base` (the set's id) keeps sets apart that share the links. `links` must outlive this
  // object.
  Messages(PeerLinks& links, std::vector<std::int32_t> ranks, int index, std::uint32_t tag_base);

  int size() const { return static_cast<int>(ranks_.size()); }
  int index() const { return index_; }

  // The memory belongs to the transfer until wait() returns. Both sides post the messages between
  // them in the same order.
  Transfer post_send(int to, const void* data, std::int64_t bytes);
  Transfer post_receive(int from, void* data, std::int64_t bytes);
  // Wait for each transfer once. An error names the peer, and after one nothing is under way.
  bool wait(const Transfer& transfer, ErrorText& error);
  bool wait_all(const std::vector<Transfer>& transfers, ErrorText& error);

  bool send(int to, const void* data, std::int64_t bytes, ErrorText& error) {
    return wait(post_send(to, data, bytes), error);
  }
  bool receive(int from, void* data, std::int64_t bytes, ErrorText& error) {
    return wait(post_receive(from, data, bytes), error);
  }

  // Memory of the algorithm that runs, until the next call.
  char* scratch(std::int64_t bytes);

  // Ends all transfers after an exception, so that nothing touches their memory any more.
  void give_up() noexcept;

 private:
  Transfer posted(Transfer transfer);

  PeerLinks& links_;
  std::vector<std::int32_t> ranks_;
  int index_;
  std::uint64_t tag_base_;
  // Numbers of the messages between this rank and each other one, by set index: sent to, received
  // from.
  std::vector<std::uint64_t> sent_;
  std::vector<std::uint64_t> received_;
  std::optional<Transfer> refused_;  // the first that could not be posted
  std::vector<char> scratch_;
};

}  // namespace hora::collectives
