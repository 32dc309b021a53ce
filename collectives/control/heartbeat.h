// Who shows signs of life: datagrams beside the control connections, since those are read by the
// thread that may be blocked in a collective. Rank 0 asks all others again and again, and each
// answers, and says in which process set it waits for others; one that is lost does not matter. Who
// has never answered is not judged: a network may let no datagrams pass.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/base/address.h"
#include "rendezvous/base/result.h"
#include "rendezvous/base/time.h"
#include "rendezvous/os/fd.h"

namespace hora::collectives {

class Heartbeat {
 public:
  // In no process set: the rank does not wait.
  static constexpr std::int32_t kNowhere = -1;

  // A socket on this host's address towards the others.
  static Result<Heartbeat> open(const std::string& address, int rank);

  // What the others have to know of this one; that of rank 0 also holds what a stranger does not
  // know.
  const std::string& card() const { return card_; }
  // Everybody's, by rank; empty: that one has no socket. Everybody is heard of here, unless the
  // network is slow: who is stopped right afterwards can be missed.
  Status bootstrap(const std::vector<std::string>& cards);

  // Readable when hear() has something to do.
  int fd() const { return socket_.get(); }
  // `waits_in`: the process set in which this rank waits for others.
  void hear(Clock::time_point now, std::int32_t waits_in);
  // Rank 0: asks all others. Elsewhere nothing.
  void ask();
  // Of those that have been heard of: who has not been since then. Elsewhere than on rank 0 it is
  // rank 0 that this is about.
  std::vector<int> silent_since(Clock::time_point then) const;
  // Rank 0: the process sets in which the others wait that have been heard of since then.
  std::vector<std::int32_t> waited_in(Clock::time_point then) const;
  // This process was stopped itself: what it has missed says nothing.
  void begin_anew(Clock::time_point now);

 private:
  using Secret = std::array<char, 8>;
  struct Sign {
    Secret secret;
    std::int32_t rank;
    std::int32_t waits_in;
  };
  struct Heard {
    Clock::time_point when;
    std::int32_t waits_in;
  };

  void send(const Endpoint& to, std::int32_t waits_in) const;

  os::Fd socket_;
  int rank_ = 0;
  std::string card_;
  Secret secret_{};
  std::vector<std::optional<Endpoint>> places_;
  std::vector<std::optional<Heard>> heard_;
};

}  // namespace hora::collectives
