// SPDX-License-Identifier: Apache-2.0
// Accepts connections on an event loop, as background work and a few per turn, so that a flood of
// them keeps nothing else waiting. On the loop's thread.
#pragma once

#include <cstdint>
#include <functional>

#include "rendezvous/base/result.h"
#include "rendezvous/net/socket.h"
#include "rendezvous/os/event_loop.h"
#include "rendezvous/os/fd.h"

namespace hora::net {

class Acceptor {
 public:
  // Must not destroy the acceptor.
  using Handler = std::function<void(Accepted)>;

  // `loop` must outlive it.
  Acceptor(os::EventLoop& loop, os::Fd listener, Handler handler);
  ~Acceptor();  // closes the listener
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  Status start();
  std::uint16_t port() const { return port_; }  // once started

 private:
  void accept_some();

  os::EventLoop& loop_;
  os::Fd listener_;
  Handler handler_;
  std::uint16_t port_ = 0;
  os::EventLoop::TimerId rest_ = 0;
};

}  // namespace hora::net
