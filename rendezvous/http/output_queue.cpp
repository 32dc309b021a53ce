#include "rendezvous/http/output_queue.h"

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace hora::http {

namespace {

// Below this a copy is cheaper than a piece of its own.
constexpr std::size_t kShared = 4 * 1024;
constexpr std::size_t kPiecesPerCall = 64;
// An idle connection keeps at most so much.
constexpr std::size_t kKeptCapacity = 16 * 1024;

}  // namespace

void OutputQueue::note_appended() {
  if (flat_.size() == noted_) return;
  pending_ += flat_.size() - noted_;
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
  if (pending_ > 0) return;
  pieces_.clear();
  first_ = 0;
  noted_ = 0;
  flat_.clear();
  if (flat_.capacity() > kKeptCapacity) flat_ = std::string();
}

}  // namespace hora::http
