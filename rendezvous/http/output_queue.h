// SPDX-License-Identifier: Apache-2.0
// Bytes on their way to a socket. Small pieces are gathered in one buffer, large values are held
// by reference, and all of it leaves in few system calls.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/net/stream.h"

namespace hora::http {

class OutputQueue {
 public:
  // The buffer for small pieces, to append to; call note_appended() afterwards.
  std::string& tail() { return flat_; }
  void note_appended();
  // Shares `value` when it is large, copies it when it is small. Null is empty.
  void append_value(std::shared_ptr<const std::string> value);

  std::size_t pending() const { return pending_; }
  bool empty() const { return pending_ == 0; }

  enum class Flush { kDone, kBlocked, kFailed };  // kFailed: the peer is gone
  // Sends what the stream takes, and adds what it took to `sent`.
  Flush flush(net::Stream& stream, std::uint64_t& sent);

 private:
  // Either a range of flat_ or a part of a shared value.
  struct Piece {
    std::shared_ptr<const std::string> value;
    std::size_t begin = 0;
    std::size_t end = 0;
  };
  const char* data_of(const Piece& piece) const;
  void consume(std::size_t count);
  void forget_sent();

  std::string flat_;
  std::size_t noted_ = 0;  // of flat_, what is in pieces_
  std::vector<Piece> pieces_;
  std::size_t first_ = 0;  // of pieces_, the first that is not sent whole
  std::size_t pending_ = 0;
};

}  // namespace hora::http
