// SPDX-License-Identifier: Apache-2.0
// PeerLinks over TCP sockets that the waiting thread itself drives: no thread of their own hands
// messages over. A rank connects to those that it has to do with, when it has: of two ranks, the
// higher one to the lower one.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collectives/backend.h"
#include "collectives/backends/tcp/connection.h"
#include "collectives/backends/tcp/listener.h"
#include "collectives/memory/futex.h"
#include "rendezvous/base/result.h"
#include "rendezvous/base/time.h"
#include "rendezvous/os/fd.h"

namespace hora::collectives::tcp {

class Links final : public PeerLinks {
 public:
  // `timeout`: how long another rank may take to accept a connection. `spin`: this host has a core
  // for each rank.
  Links(int rank, std::chrono::milliseconds timeout, bool spin);

  // Listens at that address, on any free port.
  Result<Contact> listen(const IpAddress& address);
  // By rank; this one's does not matter.
  void learn(std::vector<Contact> contacts);
  // Begins what meet() completes.
  void begin(const std::vector<int>& ranks);
  // Connects to these ranks, which call this, too, with this one among theirs. kInterrupted when
  // `broken_off` returns true, which is asked now and then.
  Status meet(
      const std::vector<int>& ranks,
      const std::function<bool()>& broken_off = [] { return false; });

  Ticket post_send(int rank, std::uint64_t tag, const void* data,
                   std::size_t bytes) noexcept override;
  Ticket post_receive(int rank, std::uint64_t tag, void* data, std::size_t bytes) noexcept override;
  bool wait(Ticket ticket, ErrorText& error) noexcept override;
  void abort() noexcept override;
  // Ends all transfers, so that their memory can go back to its owners.
  void fail(std::string why);
  void destroy() noexcept override { delete this; }

 private:
  struct Peer {
    int rank = 0;
    Connection connection;
    os::Fd connecting;
    Deadline give_up_at = Deadline::max();
    bool active = false;  // it is in active_
  };

  Ticket post(int rank, std::uint64_t tag, char* data, std::size_t bytes, bool is_send) noexcept;
  Peer& reach(int rank);
  Status begin_to_connect(Peer& peer);
  void finish_connecting(Peer& peer);
  bool is_met(int rank) const;

  void advance(const Transfer& awaited);
  void move_all();
  bool take_events(int timeout_ms);
  Deadline next_deadline() const;
  void check_deadlines();
  void let_in(std::int64_t rank, os::Fd socket);
  Status watch(int fd, std::uint64_t number);
  void fail_to_reach(int rank, std::string why);

  int rank_;
  std::chrono::milliseconds timeout_;
  Spinner spinner_;
  os::Fd epoll_;
  os::Fd stop_;  // an eventfd
  std::atomic<bool> aborted_{false};
  Listener listener_;
  std::vector<Contact> contacts_;
  std::vector<std::unique_ptr<Peer>> peers_;  // by rank; null: nothing to do with it so far
  std::vector<Peer*> active_;                 // those with something under way
  std::deque<Transfer> transfers_;            // by ticket - 1
  std::vector<Ticket> free_;
  std::string failure_;  // the first one
  int unreached_ = -1;   // by the first one
};

}  // namespace hora::collectives::tcp
