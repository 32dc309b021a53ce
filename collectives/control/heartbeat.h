// SPDX-License-Identifier: Apache-2.0
// Signs of life: datagrams in addition to the control connections, which belong to a thread that
// may be blocked in a collective. Rank 0 asks all others again and again, and each answers with
// what it waits for; a lost datagram does not matter. A rank that has never answered is not judged:
// a network may block datagrams. In a large job rank 0 asks the leaders of the other hosts alone.
// Each asks the ranks of its host, and reports their answers with their age. Rank 0 asks the ranks
// of a leader that does not answer.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
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
  // In the middle of an operation that all others of the set have begun as well, or a join;
  // otherwise for one that some have not submitted yet.
  bool in_step = false;
  std::chrono::milliseconds since{0};  // for how long
  std::string what;  // "allreduce 'x'", where it is in a step; cut when it is long
};

// By rank, the rank that asks it in a large job: rank 0, or the first rank of its host. `hosts`:
// host numbers by rank.
std::vector<int> find_askers(const std::vector<std::int32_t>& hosts);

class Heartbeat {
 public:
  // A socket on this host's address towards the others.
  static Result<Heartbeat> open(const std::string& address, int rank);

  // The data that the others need about this one; that of rank 0 also holds the secret.
  const std::string& card() const { return card_; }
  // That of all ranks, by rank; empty: that one has no socket. With `wait` it waits for a sign of
  // all, unless the network is slow: a rank that is stopped right afterwards can be missed.
  // `askers`: by rank; empty: rank 0 asks all.
  Status bootstrap(const std::vector<std::string>& cards, bool wait, std::vector<int> askers = {});
  // How many questions may follow a sign until the next one is known to rank 0.
  int delay() const { return delay_; }

  // Readable when receive() has something to do.
  int fd() const { return socket_.get(); }
  void receive(Clock::time_point now, const Wait& own);
  // The ranks that this one asks, if any.
  void ask(Clock::time_point now);
  // Of those that have answered before: the ranks that have not since then. Elsewhere than on rank
  // 0 this is about rank 0.
  std::vector<int> silent_since(Clock::time_point then) const;
  // Rank 0: what the others wait for that have answered since then.
  std::vector<Wait> waits(Clock::time_point then) const;
  // This process was stopped itself: what it has missed says nothing.
  void restart(Clock::time_point now);

 private:
  using Secret = std::array<char, 8>;
  // For a rank, the age that it reports.
  struct Sign {
    std::int32_t rank;
    std::int32_t set;
    std::int32_t in_step;
    std::int32_t since_ms;
    std::int32_t age_ms;
    std::array<char, 96> what;  // up to the first zero
  };
  // A question has the sign of rank 0, an answer those of the ranks that it is about. A plain
  // struct, sent up to its last sign: all ranks run the same version (handshake).
  struct Message {
    Secret secret;
    std::int32_t from;
    std::int32_t count;
    std::array<Sign, 12> signs;  // as many as a packet of 1,500 bytes has room for
  };
  struct Received {
    Clock::time_point when;
    Wait wait;
  };

  bool asks(std::size_t rank) const;
  void receive(Clock::time_point now, const Message& message, const Wait& own);
  void note(Clock::time_point now, const Sign& sign);
  std::optional<Sign> known_of(std::size_t rank, Clock::time_point now) const;
  void send(std::size_t to, std::span<const Sign> signs) const;

  os::Fd socket_;
  int rank_ = 0;
  std::string card_;
  Secret secret_{};
  std::vector<std::optional<Endpoint>> places_;
  std::vector<std::optional<Received>> received_;
  std::vector<int> askers_;
  std::vector<int> unanswered_;  // by rank: the questions since its last answer
  int delay_ = 1;
  bool was_asked_ = false;
};

}  // namespace hora::collectives
