// SPDX-License-Identifier: Apache-2.0
// An all-to-all exchange of small byte strings among the ranks of a process set, by way of the
// coordinator. It serves set-up, not tensors. Only the thread that drives the runtime uses it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collectives/control/control_channel.h"
#include "collectives/control/host_star.h"

namespace hora::collectives {

// A message of rank 0 that answered one of this rank: by whose clock it was when.
struct ClockSample {
  std::int64_t sent_ns = 0;  // ours
  std::int64_t zero_ns = 0;  // rank 0's, between the other two
  std::int64_t received_ns = 0;
};

// How much longer than rank 0 the others wait. Rank 0 knows which are missing, may begin later, and
// may wait for a library first (backend_pool.cpp).
inline constexpr std::chrono::seconds kRankZeroFirst{10};

// The scope in which the members of a set on one host exchange what they need to share. Process
// sets have ids from 0 on, so these scopes are negative.
inline constexpr std::int32_t kMostHosts = 1 << 15;
constexpr std::int32_t scope_within(std::int32_t set, std::int32_t host) {
  return -1 - (set * kMostHosts + host);
}
// True for the world itself and for its ranks on one host.
constexpr bool is_of_world(std::int32_t scope) { return scope <= 0 && scope >= -kMostHosts; }

class OobAllgather {
 public:
  OobAllgather(ControlChannel& channel, int rank);
  ~OobAllgather();
  // On rank 0: calls `report` once per exchange with the missing ranks after waiting for `after`.
  void report_late(Clock::duration after, std::function<void(const std::vector<int>&)> report) {
    late_after_ = after;
    report_late_ = std::move(report);
  }
  // On rank 0: the ranks that others wait for. A rank that itself waits in an exchange is held up,
  // not missing.
  std::vector<int> missing() const;

  // Switches to another channel, between two exchanges.
  void use(ControlChannel& channel) { channel_ = &channel; }
  // An exchange ends with kInterrupted when `broken_off` returns true; exchange() asks after each
  // wake-up of the channel.
  void break_off_when(std::function<bool()> broken_off) { broken_off_ = std::move(broken_off); }

  // Gives parts[i] to the rank of set index i (a single part goes to all) and returns their parts
  // by set index. `members` are global ranks, this one included; every member has to call this
  // equally often. Other messages that arrive meanwhile stay for take_deferred(). Returns
  // kInterrupted when the world ends (the deferred messages say why) or when the exchange is broken
  // off. Rank 0, which knows which are missing, times out first.
  Result<std::vector<std::string>> exchange(std::int32_t scope,
                                            const std::vector<std::int32_t>& members,
                                            const std::vector<std::string>& parts,
                                            Deadline deadline);

  // Handles the message and returns true if it belongs to an exchange. The coordinator's loop
  // passes every message here, since other ranks may be ahead of it.
  bool handle(const Incoming& message);
  // Sends the members of a scope to the coordinator, so that it knows when an exchange is complete.
  void define_scope(std::int32_t scope, std::vector<std::int32_t> members);
  void forget_scope(std::int32_t scope);

  // Of `scope`, whose members are the ranks of this host (those with `cards`, this one at `place`):
  // the exchanges go directly between them, from the first one on until leave_host().
  void meet_on_host(std::int32_t scope, LocalListener listener, std::vector<std::string> cards,
                    int place);
  void leave_host();

  // By way of rank 0, so far: each takes a round trip to its host.
  int exchanges() const { return exchanges_; }
  // While this rank waits elsewhere. Messages that have come stay.
  bool is_ending();

  std::vector<Incoming> take_deferred() { return std::exchange(deferred_, {}); }
  // Of the first exchanges, on ranks other than 0: a few that compare the two clocks.
  const std::vector<ClockSample>& samples() const { return samples_; }

 private:
  using Key = std::pair<std::int32_t, std::uint64_t>;  // scope, number
  struct Round {
    std::map<int, std::vector<std::string>> given;  // by global rank
  };

  struct Host;

  Result<std::vector<std::string>> exchange_on_host(const std::vector<std::string>& parts,
                                                    Deadline deadline);
  void contribute(const Key& key, int rank, std::vector<std::string> parts);
  void answer(const Key& key, const std::vector<std::int32_t>& members, const Round& round);

  ControlChannel* channel_;
  std::function<bool()> broken_off_ = [] { return false; };
  Clock::duration late_after_ = Clock::duration::max();
  std::function<void(const std::vector<int>&)> report_late_;
  int rank_;
  std::map<std::int32_t, std::vector<std::int32_t>> scopes_;
  std::map<std::int32_t, std::uint64_t> next_number_;
  std::map<Key, Round> rounds_;                      // coordinator: incomplete ones
  std::map<Key, std::vector<std::string>> results_;  // complete, not yet taken
  std::vector<Incoming> deferred_;
  int exchanges_ = 0;
  std::int64_t sent_ns_ = 0;  // this rank's part of the exchange that it waits in
  std::vector<ClockSample> samples_;
  Clock::duration look_every_ = Clock::duration::max();  // at broken_off_
  std::unique_ptr<Host> host_;
};

}  // namespace hora::collectives
