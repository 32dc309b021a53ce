// SPDX-License-Identifier: Apache-2.0
// Replies waiting to be sent: heads and small values in one flat buffer, large values as shared
// pieces that are never copied. Sent bytes are released even while more is pending, or a slow
// reader could make this queue keep everything it has ever taken.
#include "rendezvous/http/output_queue.h"

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace hora::http {

namespace {

// Below this size a copy is cheaper than a separate piece.
constexpr std::size_t kShared = 4 * 1024;
constexpr std::size_t kPiecesPerCall = 64;
// The most that an idle connection keeps.
constexpr std::size_t kKeptCapacity = 16 * 1024;
constexpr std::size_t kSentPieces = 64;

}  // namespace

void OutputQueue::note_appended() {
  if (flat_.size() == noted_) return;
  pending_ += flat_.size() - noted_;
  // Adjacent flat bytes are one piece: a pipelining client's small replies leave in one system
  // call.
  const bool extends = first_ < pieces_.size() && !pieces_.back().value;
  if (extends) {
    pieces_.back().end = flat_.size();
  } else {
    pieces_.push_back({.value = nullptr, .begin = noted_, .end = flat_.size()});
  }
  noted_ = flat_.size();
}

void OutputQueue::append_value(std::shared_ptr<const std::string> value) {
  if (!value || value->empty()) return;
  if (value->size() < kShared) {
    flat_.append(*value);
    note_appended();
    return;
  }
  pending_ += value->size();
  const std::size_t size = value->size();
  pieces_.push_back({.value = std::move(value), .begin = 0, .end = size});
}

const char* OutputQueue::data_of(const Piece& piece) const {
  return (piece.value ? piece.value->data() : flat_.data()) + piece.begin;
}

OutputQueue::Flush OutputQueue::flush(net::Stream& stream, std::uint64_t& sent) {
  while (pending_ > 0) {
    std::array<iovec, kPiecesPerCall> parts;
    std::size_t count = 0;
    for (std::size_t i = first_; i < pieces_.size() && count < parts.size(); ++i) {
      const Piece& piece = pieces_[i];
      parts[count++] = {const_cast<char*>(data_of(piece)), piece.end - piece.begin};
    }
    const ssize_t taken = stream.send(parts.data(), count);
    if (taken < 0) {
      if (errno == EINTR) continue;
      // ENOBUFS: the kernel is short of memory at this moment. The bytes stay, and the next turn
      // tries again.
      if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS) return Flush::kBlocked;
      return Flush::kFailed;
    }
    sent += static_cast<std::uint64_t>(taken);
    consume(static_cast<std::size_t>(taken));
  }
  return Flush::kDone;
}

void OutputQueue::consume(std::size_t count) {
  pending_ -= count;
  while (count > 0) {
    Piece& piece = pieces_[first_];
    const std::size_t part = std::min(count, piece.end - piece.begin);
    piece.begin += part;
    count -= part;
    if (piece.begin == piece.end) {
      piece.value.reset();
      ++first_;
    }
  }
  if (pending_ == 0) {
    pieces_.clear();
    first_ = 0;
    noted_ = 0;
    flat_.clear();
    if (flat_.capacity() > kKeptCapacity) std::string().swap(flat_);
    return;
  }
  forget_sent();
}

// A peer that always leaves a few bytes unread must not make this queue keep everything that was
// sent. Half at a time: what is moved to the front is never more than what was sent.
void OutputQueue::forget_sent() {
  if (first_ > kSentPieces && first_ > pieces_.size() / 2) {
    pieces_.erase(pieces_.begin(), pieces_.begin() + static_cast<std::ptrdiff_t>(first_));
    first_ = 0;
  }
  const auto unsent = std::find_if(pieces_.begin() + static_cast<std::ptrdiff_t>(first_),
                                   pieces_.end(), [](const Piece& piece) { return !piece.value; });
  const std::size_t gone = unsent == pieces_.end() ? noted_ : unsent->begin;
  if (gone < kKeptCapacity || gone < flat_.size() / 2) return;
  flat_.erase(0, gone);
  noted_ -= gone;
  for (auto piece = unsent; piece != pieces_.end(); ++piece) {
    if (piece->value) continue;
    piece->begin -= gone;
    piece->end -= gone;
  }
  if (flat_.capacity() > 4 * std::max(flat_.size(), kKeptCapacity)) flat_.shrink_to_fit();
}

}  // namespace hora::http
