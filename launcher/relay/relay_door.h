// SPDX-License-Identifier: Apache-2.0
// An agent's end of the relay: ranks of all hosts connect here in place of the launcher's
// rendezvous. Who they are is for the rendezvous to see. On the loop's thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "launcher/relay/relay_channels.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

class RelayDoor {
 public:
  // Listens on a free port of this address.
  static Result<std::unique_ptr<RelayDoor>> open(os::EventLoop& loop, const std::string& address,
                                                 const RelayChannels::Send& send);
  ~RelayDoor();
  RelayDoor(const RelayDoor&) = delete;
  RelayDoor& operator=(const RelayDoor&) = delete;

  int port() const { return port_; }
  RelayChannels& channels() { return channels_; }

 private:
  RelayDoor(os::EventLoop& loop, os::Fd socket, int port, const RelayChannels::Send& send)
      : loop_(loop), socket_(std::move(socket)), port_(port), send_(send), channels_(loop, send) {}
  void accept_some();

  os::EventLoop& loop_;
  os::Fd socket_;
  const int port_;
  RelayChannels::Send send_;
  RelayChannels channels_;
  RelayChannels::Number next_ = 1;
  os::EventLoop::TimerId timer_ = 0;
};

}  // namespace hora::launcher
