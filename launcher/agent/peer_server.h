// SPDX-License-Identifier: Apache-2.0
// A port at which this host serves other hosts of the job. Strangers can connect to it, so all that
// they cost is bounded: their number, what is read from them, and their time. What a peer has to
// say, and what it gets for that, is the affair of its PeerTalk.
//
// On the loop's thread; listens from create() until it is destroyed.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "rendezvous/base/result.h"
#include "rendezvous/base/time.h"
#include "rendezvous/net/acceptor.h"
#include "rendezvous/os/event_loop.h"
#include "rendezvous/os/fd.h"

namespace hora::launcher {

// One peer's connection: stranger --messages--> served --> gone.
class PeerTalk {
 public:
  enum class Verdict : std::uint8_t { kGoes, kMayGoOn, kIsServed };

  virtual ~PeerTalk() = default;
  // The size of the stranger's next message, at least 1.
  virtual std::size_t awaited() const = 0;
  // The whole message. It may answer with what fits into an empty socket's buffer.
  virtual Verdict hear(int fd, std::string_view message) = 0;
  // Sends a piece to a peer that is served. Returns as send() does; 0: it has everything.
  virtual ssize_t send_some(int fd) = 0;
};

struct PeerLimits {
  std::size_t strangers;                // at a time: who are not served yet
  std::size_t served;                   // at a time, see has_room()
  std::chrono::seconds talk_patience;   // until a stranger is served
  std::chrono::seconds serve_patience;  // of a served peer that takes no bytes
};

class PeerServer {
 public:
  using MakeTalk = std::function<std::unique_ptr<PeerTalk>()>;

  static Result<std::unique_ptr<PeerServer>> create(os::EventLoop& loop, PeerLimits limits,
                                                    MakeTalk make_talk);
  ~PeerServer();
  PeerServer(const PeerServer&) = delete;
  PeerServer& operator=(const PeerServer&) = delete;

  int port() const { return acceptor_.port(); }
  // For one more that is served.
  bool has_room() const { return served_ < limits_.served; }

 private:
  struct Peer {
    os::Fd fd;
    std::unique_ptr<PeerTalk> talk;
    std::string heard;  // of the next message
    bool served = false;
    Clock::time_point deadline;
  };
  using Number = std::uint64_t;

  PeerServer(os::EventLoop& loop, PeerLimits limits, MakeTalk make_talk, os::Fd socket);
  void admit(os::Fd fd);
  void drop_oldest_stranger();
  void on_event(Number number);
  bool listen_to(Peer& peer);  // false: it goes
  bool begin_serving(Peer& peer);
  bool send_some(Peer& peer);
  void drop(Number number);
  void look_at_deadlines();

  os::EventLoop& loop_;
  PeerLimits limits_;
  MakeTalk make_talk_;
  std::map<Number, Peer> peers_;  // the oldest first
  std::size_t served_ = 0;        // of them
  Number next_ = 1;
  os::EventLoop::TimerId timer_ = 0;
  net::Acceptor acceptor_;
};

}  // namespace hora::launcher
