// SPDX-License-Identifier: Apache-2.0
// Who shows signs of life: datagrams beside the control connections, since those are read by the
// thread that may be blocked in a collective. Rank 0 asks all others again and again, and each
// answers, and says what it waits for; one that is lost does not matter. Who has never answered is
// not judged: a network may let no datagrams pass.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/base/address.h"
#include "rendezvous/base/result.h"
#include "rendezvous/base/time.h"
#include "rendezvous/os/fd.h"

namespace hora::collectives {

// What a rank waits for.
struct Wait {
  // In no process set: it does not wait.
  static constexpr std::int32_t kNowhere = -1;

  std::int32_t set = kNowhere;
  // In the middle of something that all others of the set have begun as well, or joined; otherwise
  // for what some have not submitted yet.
  bool in_step = false;
  std::chrono::milliseconds since{0};  // for how long
  std::string what;  // "allreduce 'x'", where it is in a step; cut when it is long
};

class Heartbeat {
 public:
  // A socket on this host's address towards the others.
  static Result<Heartbeat> open(const std::string& address, int rank);

  // What the others have to know of this one; that of rank 0 also holds what a stranger does not
  // know.
  const std::string& card() const { return card_; }
  // Everybody's, by rank; empty: that one has no socket. With `wait` everybody is heard of here,
  // unless the network is slow: who is stopped right afterwards can be missed.
  Status bootstrap(const std::vector<std::string>& cards, bool wait);

  // Readable when hear() has something to do.
  int fd() const { return socket_.get(); }
  void hear(Clock::time_point now, const Wait& own);
  // Rank 0: asks all others. Elsewhere nothing.
  void ask();
  // Of those that have been heard of: who has not been since then. Elsewhere than on rank 0 it is
  // rank 0 that this is about.
  std::vector<int> silent_since(Clock::time_point then) const;
  // Rank 0: what the others wait for that have been heard of since then.
  std::vector<Wait> waits(Clock::time_point then) const;
  // This process was stopped itself: what it has missed says nothing.
  void begin_anew(Clock::time_point now);

 private:
  using Secret = std::array<char, 8>;
  struct Sign {
    Secret secret;
    std::int32_t rank;
    std::int32_t set;
    std::int32_t in_step;
    std::int32_t since_ms;
    std::array<char, 96> what;  // up to the first zero
  };
  struct Heard {
    Clock::time_point when;
    Wait wait;
  };

  void send(const Endpoint& to, const Wait& own) const;

  os::Fd socket_;
  int rank_ = 0;
  std::string card_;
  Secret secret_{};
  std::vector<std::optional<Endpoint>> places_;
  std::vector<std::optional<Heard>> heard_;
};

}  // namespace hora::collectives
