// SPDX-License-Identifier: Apache-2.0
// A port at which this host serves deliveries to other hosts of the job, encrypted and
// authenticated with libsodium's secretstream.
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

// Encrypts and authenticates the data between hosts (protocol/delivery.h): libsodium's
// secretstream, XChaCha20-Poly1305. Pieces that were changed, reordered, repeated or left out do
// not open, nor does a stream that ends early. Both sides know how long the contents are, so no
// lengths are sent:
//   header (24 bytes), then the contents in pieces of kSealedPiece bytes, the last one shorter;
//   each piece is kSealOverhead bytes longer when it is sealed
// One object for one stream; any thread, one at a time.

// A receiver cannot use a piece before all of it has come, so pieces are small compared with a
// socket's buffer; each costs 17 bytes and a tag.
inline constexpr std::size_t kSealedPiece = std::size_t{64} * 1024;
inline constexpr std::size_t kSealHeader = 24;
inline constexpr std::size_t kSealOverhead = 17;

// Bytes on the wire for contents of this size.
constexpr std::size_t sealed_size(std::size_t contents) {
  return kSealHeader + contents + kSealOverhead * ((contents + kSealedPiece - 1) / kSealedPiece);
}

class DeliverySealer {
 public:
  // `key` has 32 bytes, and is for this stream alone.
  explicit DeliverySealer(std::string_view key);
  ~DeliverySealer();
  DeliverySealer(DeliverySealer&&) noexcept;

  // The next pieces of `contents`, which is the same at each call, about `most` bytes; empty when
  // all of it was given. The first call begins with the header.
  std::string next(std::string_view contents, std::size_t most);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

class DeliveryOpener {
 public:
  DeliveryOpener(std::string_view key, std::size_t contents_size);
  ~DeliveryOpener();
  DeliveryOpener(DeliveryOpener&&) noexcept;

  // How many bytes on the wire are still to come.
  std::size_t missing() const;
  // Takes bytes in any cut, never more than missing(), and appends what they open to `contents`.
  // Error: they are not what was sealed with this key. Then nothing more may be fed.
  Status feed(std::string_view bytes, std::string& contents);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// A port at which this host serves other hosts of the job, and the deliveries that it serves there.

// A port at which this host serves other hosts of the job. Other programs can connect to it, so
// their cost is bounded: their number, the bytes read from them, and their time. The messages and
// their answers are the task of PeerTalk. On the loop's thread; listens from create() until it is
// destroyed.

// One peer's connection: unauthenticated --messages--> served --> gone.
class PeerTalk {
 public:
  enum class Verdict : std::uint8_t { kGoes, kMayGoOn, kIsServed };

  virtual ~PeerTalk() = default;
  // The size of the unauthenticated peer's next message, at least 1.
  virtual std::size_t awaited() const = 0;
  // The whole message. It may answer with what fits into an empty socket's buffer.
  virtual Verdict receive(int fd, std::string_view message) = 0;
  // Sends a piece to a peer that is served. Returns as send() does; 0: it has everything.
  virtual ssize_t send_some(int fd) = 0;
};

struct PeerLimits {
  std::size_t pending;                 // at a time, of those not served yet
  std::size_t served;                  // at a time, see has_room()
  std::chrono::seconds talk_timeout;   // until a peer is served
  std::chrono::seconds serve_timeout;  // of a served peer that takes no bytes
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
    std::string received;  // of the next message
    bool served = false;
    Clock::time_point deadline;
  };
  using Number = std::uint64_t;

  PeerServer(os::EventLoop& loop, PeerLimits limits, MakeTalk make_talk, os::Fd socket);
  void admit(os::Fd fd);
  void drop_oldest_pending();
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

// Serves deliveries that this host has to other hosts of the job (protocol/delivery.h). A
// peer that does not prove to have the key gets a random number and is disconnected. On the loop's
// thread; listens from create() until it is destroyed.
class DeliveryServer {
 public:
  static Result<std::unique_ptr<DeliveryServer>> create(os::EventLoop& loop, std::string key);

  int port() const { return peers_->port(); }
  void offer(const std::string& id, std::shared_ptr<const std::string> frames);
  void withdraw(const std::string& id) {
    offers_.erase(id);
  }  // the peer that is being served gets the rest

 private:
  class Talk;

  explicit DeliveryServer(std::string key);

  std::string key_;
  std::map<std::string, std::shared_ptr<const std::string>> offers_;
  std::unique_ptr<PeerServer> peers_;  // goes first: its talks use the others
};

}  // namespace hora::launcher
