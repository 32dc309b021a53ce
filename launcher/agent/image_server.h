// SPDX-License-Identifier: Apache-2.0
// Serves this agent's own program to hosts that lack it, which have nothing of ours but a shell
// (transports/fetch_script.h). Who sends a line with the launcher's token gets the bytes of the
// program, anybody else nothing:
//
//   "HORA-IMAGE-1 <token>\n"  -->  the program, end of stream
//
// The program is no secret; the token keeps strangers from using the host's link. Who fetches
// trusts the launcher's SHA-256, not this. On the loop's thread; listens from create() until it is
// destroyed.
#pragma once

#include <memory>
#include <string>

#include "launcher/agent/peer_server.h"
#include "rendezvous/base/result.h"
#include "rendezvous/os/event_loop.h"
#include "rendezvous/os/fd.h"

namespace hora::launcher {

class ImageServer {
 public:
  // `program`: the file, for tests.
  static Result<std::unique_ptr<ImageServer>> create(os::EventLoop& loop, const std::string& token,
                                                     const std::string& program = "/proc/self/exe");

  int port() const { return peers_->port(); }

 private:
  class Talk;

  ImageServer(os::Fd program, std::string request);

  os::Fd program_;
  std::string request_;                // the line
  std::unique_ptr<PeerServer> peers_;  // goes first: its talks use the others
};

}  // namespace hora::launcher
