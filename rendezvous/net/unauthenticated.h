// SPDX-License-Identifier: Apache-2.0
// Connections whose other end has not authenticated itself yet. Any process may connect to a
// listening socket, so their number has a limit, which bounds the memory and the descriptors that
// outsiders can take. Beyond it an old connection is closed for a new one: preferably one that has
// sent nothing, as a rank authenticates as soon as it is connected. The owner waits by epoll,
// edge-triggered: an event's data.u64 is the number of a connection here. One thread at a time.
#pragma once

#include <sys/epoll.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "rendezvous/base/result.h"
#include "rendezvous/net/socket.h"
#include "rendezvous/os/fd.h"

namespace hora::net {

// `Connection` has an `os::Fd socket`, and `bool has_spoken() const`: its other end has said
// something, though not all.
template <typename Connection>
class Unauthenticated {
 public:
  // Never used again, so a late event reaches no other connection.
  using Number = std::uint64_t;
  // Reads all there is. It takes the socket away from a connection that has authenticated itself,
  // and closes it when the connection is over: both leave here then.
  using Read = std::function<void(Connection&)>;

  // `epoll` is the owner's, and `first` above all numbers that it uses itself there.
  Unauthenticated(int epoll, Number first, Read read)
      : epoll_(epoll), next_(first), read_(std::move(read)) {}

  // Accepts waiting connections, a bounded number: they may arrive faster than they can be
  // accepted. `awaited` of them may be ranks that have all sent something; as many `others` are
  // allowed besides. Fails when no descriptor or memory is left, even without those that are here.
  Status accept_from(int listener, std::size_t awaited, std::size_t others) {
    for (int i = 0; i < kAcceptsPerTurn; ++i) {
      auto accepted = accept_stream(listener);
      if (!accepted) {
        if (size() == 0) return std::move(accepted).error();
        close_one(awaited);
        continue;
      }
      if (!accepted->has_value()) return Ok{};
      if (size() > 0 && size() >= awaited + others) close_one(awaited);
      HORA_TRY(add(*std::move(*accepted)));
    }
    return Ok{};
  }

  // On an event of that number, whose connection may have been closed meanwhile.
  void read(Number number) {
    Connections& all = silent_.contains(number) ? silent_ : speaking_;
    const auto found = all.find(number);
    if (found == all.end()) return;
    read_(found->second);
    if (!found->second.socket.valid()) {
      all.erase(found);
    } else if (&all == &silent_ && found->second.has_spoken()) {
      speaking_.insert(silent_.extract(found));
    }
  }

  void read_all_that_have_spoken() {
    for (auto each = speaking_.begin(); each != speaking_.end();) read((each++)->first);
  }

  std::size_t size() const { return silent_.size() + speaking_.size(); }

 private:
  using Connections = std::map<Number, Connection>;  // the oldest first

  static constexpr int kAcceptsPerTurn = 64;

  Status add(os::Fd socket) {
    const Number number = next_++;
    epoll_event event{};
    event.events = EPOLLIN | EPOLLET;
    event.data.u64 = number;
    if (::epoll_ctl(epoll_, EPOLL_CTL_ADD, socket.get(), &event) != 0) {
      return errno_error(errno, "watching a connection");
    }
    silent_[number].socket = std::move(socket);
    read(number);
    return Ok{};
  }

  // The oldest one that has sent nothing, up to now: its words may have come without being read.
  // Only where more have spoken than are awaited, the oldest of these.
  void close_one(std::size_t awaited) {
    for (const std::size_t before = size(); size() == before;) {
      if (silent_.empty() || speaking_.size() > awaited) {
        speaking_.erase(speaking_.begin());
        continue;
      }
      const Number oldest = silent_.begin()->first;
      read(oldest);
      silent_.erase(oldest);
    }
  }

  int epoll_;
  Number next_;
  Read read_;
  Connections silent_;
  Connections speaking_;
};

}  // namespace hora::net
