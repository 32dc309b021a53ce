// SPDX-License-Identifier: Apache-2.0
// Where a rank listens for other ranks. Any process may connect: a rank presents the key that the
// owner has given to all ranks over the control channel; others are disconnected.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "rendezvous/base/address.h"
#include "rendezvous/base/result.h"
#include "rendezvous/net/unauthenticated.h"
#include "rendezvous/os/fd.h"

namespace hora::collectives::tcp {

using Key = std::array<char, 16>;

// Where a rank listens, and what to show there.
struct Contact {
  Endpoint where;
  Key key{};
};

// What precedes the messages on a connection, in the byte order of this machine.
struct Greeting {
  static constexpr std::uint64_t kMagic = 0x3176'6b6e'694c'6f48;  // "HoLinkv1"

  std::uint64_t magic = kMagic;
  std::int64_t rank = 0;  // which connects
  Key key{};
};

// On the thread of its owner, which waits by epoll.
class Listener {
 public:
  // How many connections, in addition to those of the ranks, may not have presented the key yet.
  static constexpr std::size_t kMostPending = 64;

  // A peer with the key, and the rank that it claims to be; the claim need not be true, nor such a
  // rank exist. The bytes that follow the greeting are unread.
  using OnRank = std::function<void(std::int64_t rank, os::Fd socket)>;

  // `epoll` is the owner's. Events at or above `first` are for read(), those of fd() for
  // accept_some().
  Listener(int epoll, std::uint64_t first, OnRank on_rank);

  // Listens at that address, on any free port.
  Result<Contact> open(const IpAddress& address);
  int fd() const { return socket_.get(); }
  // `ranks`: how many may connect. Fails when it cannot accept any more.
  Status accept_some(std::size_t ranks) {
    return pending_.accept_from(socket_.get(), ranks, kMostPending);
  }
  void read(std::uint64_t number) { pending_.read(number); }

 private:
  // A connection that has not presented the key yet.
  struct PendingPeer {
    bool has_spoken() const { return here > 0; }

    os::Fd socket;
    Greeting greeting;
    std::size_t here = 0;  // bytes of the greeting
  };
  void receive(PendingPeer& pending);

  os::Fd socket_;
  Key key_{};
  OnRank on_rank_;
  net::Unauthenticated<PendingPeer> pending_;
};

// Firewalls between hosts forget a connection that is silent for minutes, as one is while the ranks
// compute for long, or have only small tensors, which go by their leaders.
void keep_alive(int socket);

}  // namespace hora::collectives::tcp
