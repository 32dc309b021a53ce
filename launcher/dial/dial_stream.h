// SPDX-License-Identifier: Apache-2.0
// One end of an encrypted connection between launcher and machine: frames in, frames out. Lives on
// one event loop's thread and never blocks. Owns the connection.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "launcher/dial/dial_protocol.h"
#include "launcher/transports/supervisor_socket.h"
#include "rendezvous/net/stream.h"
#include "rendezvous/os/event_loop.h"

namespace hora::launcher {

class DialStream {
 public:
  // The owner may destroy the stream from inside any of them.
  struct Handlers {
    std::function<void(const DialFrame&)> on_frame;
    // The connection has ended, or the other side broke the protocol; once, and the last call.
    std::function<void(const std::string& why)> on_end;
    // Less waits to be sent than before.
    std::function<void()> on_room;
  };

  // `largest`: the payload of a frame that comes in.
  DialStream(os::EventLoop& loop, std::unique_ptr<net::Stream> stream, std::size_t largest,
             Handlers handlers);
  ~DialStream();
  DialStream(const DialStream&) = delete;
  DialStream& operator=(const DialStream&) = delete;

  Status open();
  void allow(std::size_t largest) { reader_.allow(largest); }
  // Queues a frame. Ignored once the connection has ended.
  void send(DialFrameType type, std::string_view head = {}, std::string_view body = {});
  std::size_t waiting() const { return out_.size(); }
  // Whether frames are read. Frames that are on their way already may still come.
  void listen(bool wanted);
  // Sends what waits, as far as it goes at once, and closes.
  void close();

 private:
  void on_io(std::uint32_t events);
  void read_some();
  void write_some();
  void update_watch();
  void end(const std::string& why);

  os::EventLoop& loop_;
  std::unique_ptr<net::Stream> stream_;  // nullptr: ended
  DialFrameReader reader_;
  std::shared_ptr<const Handlers> handlers_;  // every caller holds them
  ByteQueue out_;
  std::uint32_t events_ = 0;
  bool listening_ = true;
  bool peer_closed_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // set to false by the destructor
};

// The kernel looks for a dead peer: a cut network sends no end of a connection. Within 30 s.
void keep_alive(int fd);

}  // namespace hora::launcher
