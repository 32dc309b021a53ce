// SPDX-License-Identifier: Apache-2.0
// An agent's end of the relay: ranks of all hosts connect here in place of the launcher's
// rendezvous. Who they are is for the rendezvous to see. On the loop's thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "launcher/relay/relay_channels.h"
#include "rendezvous/base/result.h"
#include "rendezvous/net/acceptor.h"

namespace hora::launcher {

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
