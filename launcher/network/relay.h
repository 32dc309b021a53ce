// SPDX-License-Identifier: Apache-2.0
// Connections of ranks to the rendezvous, carried in the frames of an agent's stream where ranks
// cannot reach the launcher.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <variant>

#include "launcher/protocol/messages.h"
#include "rendezvous/base/result.h"
#include "rendezvous/net/acceptor.h"
#include "rendezvous/os/event_loop.h"
#include "rendezvous/os/fd.h"

namespace hora::launcher {

// Of one connection. Only an agent opens one.
using RelayMessage = std::variant<RelayOpened, RelayedBytes, RelayedBytesTaken>;

// One end of connections whose bytes travel in the frames of an agent's stream: each has a socket
// here, and one with the same number at the other end. On the loop's thread. A chunk is sent when
// the one before it has been taken by the socket at the other end, so a connection holds no more
// than a chunk in each direction, and waits only for its own ends.

class RelayChannels {
 public:
  using Number = std::uint32_t;
  using Send = std::function<void(const RelayMessage& message)>;

  RelayChannels(os::EventLoop& loop, Send send) : loop_(loop), send_(std::move(send)) {}
  ~RelayChannels();
  RelayChannels(const RelayChannels&) = delete;
  RelayChannels& operator=(const RelayChannels&) = delete;

  // A connected socket, non-blocking. The number is new.
  void add(Number number, os::Fd socket);
  bool has(Number number) const { return channels_.count(number) != 0; }
  std::size_t size() const { return channels_.size(); }

  // Messages from the other end. Of a connection that is not known they say that it has ended here.
  void on_data(Number number, std::string_view bytes);
  void on_taken(Number number);

 private:
  struct Channel {
    os::Fd socket;
    std::string outgoing;     // for the socket
    bool is_waiting = false;  // for the other end to take a chunk
    bool is_ending = false;   // when `outgoing` is written
  };
  using Place = std::map<Number, Channel>::iterator;

  void on_event(Number number, std::uint32_t events);
  bool read_some(Place place);   // false: the connection has ended
  bool write_some(Place place);  // likewise
  void watch_for_more(const Channel& channel);
  void end(Place place);
  void drop(Place place);

  os::EventLoop& loop_;
  Send send_;
  std::map<Number, Channel> channels_;
};

// An agent's end of the relay: ranks of all hosts connect here instead of to the launcher's
// rendezvous, which authenticates them. On the loop's thread.

class RelayDoor {
 public:
  // Listens on a free port of this address.
  static Result<std::unique_ptr<RelayDoor>> open(os::EventLoop& loop, const std::string& address,
                                                 const RelayChannels::Send& send);

  int port() const { return acceptor_.port(); }
  RelayChannels& channels() { return channels_; }

 private:
  RelayDoor(os::EventLoop& loop, os::Fd socket, const RelayChannels::Send& send);
  void admit(os::Fd socket);

  RelayChannels::Send send_;
  RelayChannels channels_;
  RelayChannels::Number next_ = 1;
  net::Acceptor acceptor_;
};

}  // namespace hora::launcher
