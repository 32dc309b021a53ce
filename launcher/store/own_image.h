// SPDX-License-Identifier: Apache-2.0
// This agent's own program: whether it is the one that its name in the cache says, and its service
// to hosts that lack it.
#pragma once

#include <memory>
#include <string>

#include "launcher/store/peer_server.h"
#include "rendezvous/base/result.h"
#include "rendezvous/os/event_loop.h"
#include "rendezvous/os/fd.h"

namespace hora::launcher {

// Is this agent the program that its name in the cache says? Takes as long as reading the program
// does, a few megabytes the first time.

// Checks the running program. One that is called agent-SHA256 has to belong to us, be writable by
// no other user, and have that hash. A file that passed is noted next to it, by inode, size and the
// times of its last changes, and is not read again as long as those stay. Returns the hash; empty
// for a program of another name, which is not a cached copy. On an error the file is removed, so
// that the launcher sends a good one.
Result<std::string> verify_own_image();

// The same for the file at `path`, open as `program` (/proc/self/exe); for tests.
Result<std::string> verify_image(const std::string& path, const std::string& program);

// Serves this agent's own program to hosts that lack it, which have nothing of ours but a shell
// (transports/fetch_script.h). A client that sends a line with the launcher's token gets the bytes
// of the program, any other client nothing:
//   "HORA-IMAGE-1 <token>\n"  -->  the program, end of stream
// The program is not a secret; the token keeps other programs from using the host's link. The
// client trusts the launcher's SHA-256, not this server. On the loop's thread; listens from
// create() until it is destroyed.

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
