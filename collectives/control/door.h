// SPDX-License-Identifier: Apache-2.0
// Accepts connections and authenticates the peers that made them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/control/frame_buffer.h"
#include "collectives/control/tcp_control.h"
#include "rendezvous/base/result.h"
#include "rendezvous/base/time.h"
#include "rendezvous/net/unauthenticated.h"
#include "rendezvous/os/fd.h"

namespace hora::collectives {

// How two processes prove to each other that they hold the job's token, without sending it: each
// answers the other's random number with HMAC-SHA256(token, role, both numbers, rank).

// `role` is "coordinator" or "worker". Returns 32 bytes. Thread-safe.
std::string handshake_proof(std::string_view token, std::string_view role,
                            std::string_view worker_nonce, std::string_view coordinator_nonce,
                            int rank);

// A listening socket at which ranks authenticate. Any process may connect: each side proves that it
// knows the token before the other trusts anything, and the token itself is never sent. All
// connections are read in one loop, so a client that stalls delays no other.

// The limit of unauthenticated connections in addition to those of the ranks.
inline constexpr std::size_t kMaxUnauthenticated = 256;

// A rank that has proved itself and waits for its welcome.
struct PendingPeer {
  int rank = 0;
  bool carries = false;  // messages of other ranks, too
  std::string rank_info;
  os::Fd socket;
  FrameBuffer in;  // what has come after the proof
};

class HandshakeAcceptor {
 public:
  // `is_in` says whether a rank has joined before. `takes_nodes`: nodes that carry the messages of
  // other ranks are admitted.
  HandshakeAcceptor(os::Fd listener, ControlIdentity self, bool takes_nodes,
                    std::function<bool(int)> is_in);

  Status open();
  // Readable when look() has something to do.
  int fd() const { return epoll_.get(); }
  // The latest moment for the next look(), when fd() stays silent.
  Deadline next_look() const;
  // Waits until a client sends something, at most until then (kNoWait: not at all), and returns
  // those that have authenticated.
  Result<std::vector<PendingPeer>> look(Deadline until);

 private:
  // A connection that has not finished its handshake.
  struct Candidate {
    bool has_spoken() const { return rank >= 0; }

    os::Fd socket;
    FrameBuffer in;
    std::string out;  // what the kernel had no room for yet
    int rank = -1;    // once it has said so
    bool carries = false;
    std::string worker_nonce;
    std::string own_nonce;
  };

  void converse(Candidate& candidate);
  void say(Candidate& candidate, std::string_view message);
  void push(Candidate& candidate);
  void refuse(Candidate& candidate, std::string_view why);
  void read_from(Candidate& candidate);
  void take_messages(Candidate& candidate);
  void on_hello(Candidate& candidate, std::string_view bytes);
  void on_proof(Candidate& candidate, std::string_view bytes);
  bool is_in(int rank) const;

  os::Fd listener_;
  os::Fd epoll_;
  ControlIdentity self_;
  bool takes_nodes_;
  std::function<bool(int)> is_in_;
  net::Unauthenticated<Candidate> candidates_;
  Deadline look_again_ = Deadline::max();  // earlier while some candidate's `out` is not empty
  std::vector<PendingPeer> came_;
};

}  // namespace hora::collectives
