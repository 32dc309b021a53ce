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

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "rendezvous/base/result.h"
#include "rendezvous/base/time.h"
#include "rendezvous/os/event_loop.h"
#include "rendezvous/os/fd.h"

namespace hora::launcher {

class ImageServer {
 public:
  // `program`: the file, for tests.
  static Result<std::unique_ptr<ImageServer>> create(os::EventLoop& loop, const std::string& token,
                                                     const std::string& program = "/proc/self/exe");
  ~ImageServer();
  ImageServer(const ImageServer&) = delete;
  ImageServer& operator=(const ImageServer&) = delete;

  int port() const { return port_; }

 private:
  struct Peer {
    os::Fd fd;
    std::string heard;
    bool admitted = false;  // it has sent the line
    off_t sent = 0;         // of the program
    Clock::time_point deadline;
  };
  using Number = std::uint64_t;

  ImageServer(os::EventLoop& loop, os::Fd socket, int port, os::Fd program, std::string request);
  void accept_some();
  void admit(os::Fd fd);
  void on_event(Number number);
  bool listen_to(Peer& peer);  // false: it goes
  bool send_some(Peer& peer);
  void drop(Number number);
  void look_at_deadlines();

  os::EventLoop& loop_;
  os::Fd socket_;
  int port_;
  os::Fd program_;
  std::string request_;           // the line
  std::map<Number, Peer> peers_;  // the oldest first
  std::size_t admitted_ = 0;      // of them
  Number next_ = 1;
  os::EventLoop::TimerId timer_ = 0;
};

}  // namespace hora::launcher
