// SPDX-License-Identifier: Apache-2.0
// Both sides of a transfer number their messages to each other, and the number is the tag; so they
// agree on tags without talking, as long as all ranks run the same operations in the same order.
// Empty messages are never sent: both sides know the sizes.
#include "collectives/algorithms/messages.h"

#include <utility>

namespace hora::collectives {

Messages::Messages(PeerLinks& links, std::vector<std::int32_t> ranks, int index,
                   std::uint32_t tag_base)
    : links_(links),
      ranks_(std::move(ranks)),
      index_(index),
      tag_base_(static_cast<std::uint64_t>(tag_base) << 40),
      sent_(ranks_.size(), 0),
      received_(ranks_.size(), 0) {}

Transfer Messages::post_send(int to, const void* data, std::int64_t bytes) {
  if (bytes == 0) return {};
  const auto at = static_cast<std::size_t>(to);
  return posted({Transfer::Kind::kSend, to,
                 links_.post_send(ranks_[at], tag_base_ | sent_[at]++, data,
                                  static_cast<std::size_t>(bytes))});
}

Transfer Messages::post_receive(int from, void* data, std::int64_t bytes) {
  if (bytes == 0) return {};
  const auto at = static_cast<std::size_t>(from);
  return posted({Transfer::Kind::kReceive, from,
                 links_.post_receive(ranks_[at], tag_base_ | received_[at]++, data,
                                     static_cast<std::size_t>(bytes))});
}

Transfer Messages::posted(Transfer transfer) {
  if (transfer.ticket == 0 && !refused_) refused_ = transfer;
  return transfer;
}

bool Messages::wait(const Transfer& transfer, ErrorText& error) {
  if (transfer.kind == Transfer::Kind::kNone) return true;
  // The next wait reports a refused post, whatever it waits for: so it speaks of that one.
  const Transfer& subject = refused_ ? *refused_ : transfer;
  ErrorText reason;
  if (links_.wait(subject.ticket, reason)) return true;
  // Keep whether the failure began here: the caller's text replaces only the words.
  error.own = reason.own;
  error.unreached = reason.unreached;
  return error.set("%s rank %d: %s",
                   subject.kind == Transfer::Kind::kSend ? "sending to" : "receiving from",
                   ranks_[static_cast<std::size_t>(subject.peer)], reason.text);
}

bool Messages::wait_all(const std::vector<Transfer>& transfers, ErrorText& error) {
  for (const Transfer& transfer : transfers) {
    if (!wait(transfer, error)) return false;
  }
  return true;
}

char* Messages::scratch(std::int64_t bytes) {
  if (static_cast<std::int64_t>(scratch_.size()) < bytes) {
    scratch_.resize(static_cast<std::size_t>(bytes));
  }
  return scratch_.data();
}

void Messages::give_up() noexcept {
  ErrorText ignored;
  // Waiting for ticket 0 fails, and a failure ends all transfers (backend.h).
  links_.wait(0, ignored);
}

}  // namespace hora::collectives
