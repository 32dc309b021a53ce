// SPDX-License-Identifier: Apache-2.0
// The connection to one other rank: messages in both directions, each a tag, a length and as many
// bytes, which go from and to the memory of their transfers.
//
// A message is read only when its receive is posted. Until then it lies in the sockets of both
// sides, and TCP keeps the sender from going on: a rank that is ahead costs the others no memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>

#include "rendezvous/os/fd.h"

namespace hora::collectives::tcp {

// One message under way. Its owner keeps it until it is done.
struct Transfer {
  std::uint64_t tag = 0;
  char* data = nullptr;  // a send only reads it
  std::size_t bytes = 0;
  std::size_t moved = 0;
  bool done = false;
};

class Connection {
 public:
  // Both may be called before the connection is open.
  void send(Transfer& transfer) { sends_.push_back(&transfer); }
  void receive(Transfer& transfer) { receives_.push_back(&transfer); }
  bool is_idle() const { return sends_.empty() && receives_.empty() && greeting_.empty(); }

  // `greeting` goes before all messages.
  void open(os::Fd socket, std::string greeting);
  bool is_open() const { return socket_.valid(); }

  // What epoll has said, edge-triggered.
  void note_events(std::uint32_t events);
  // Moves what the socket takes and gives at this moment. Once it has failed, it moves nothing
  // more, and failure() says why.
  bool move();
  const std::string& failure() const { return failure_; }

  // No transfer is under way any more.
  void forget_transfers();

 private:
  struct Head {
    std::uint64_t tag;
    std::uint64_t bytes;
  };

  bool send_some();
  void sent(std::size_t count);
  bool receive_some();
  bool receive_into(char* to, std::size_t bytes, std::size_t& have);
  Transfer* due();
  void finish(Transfer& receive);
  bool fail(std::string why);

  os::Fd socket_;
  bool readable_ = false;
  bool writable_ = false;
  bool ends_ = false;  // the peer sends nothing more, or the connection is broken

  std::string greeting_;  // what has not been sent of it
  std::deque<Transfer*> sends_;
  std::size_t head_sent_ = 0;  // of the first one's head

  std::deque<Transfer*> receives_;
  Head head_{};
  std::size_t head_here_ = 0;
  std::string failure_;
};

}  // namespace hora::collectives::tcp
