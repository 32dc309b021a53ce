// All-to-all exchange of small byte strings among the ranks of a process set, by way of the
// coordinator. For setting things up; not for tensors.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "collectives/control/control_channel.h"

namespace hora::collectives {

// Where the members of a set on one host meet, to set up what they share. Sets have ids from 0 on.
inline constexpr std::int32_t kMostHosts = 1 << 15;
constexpr std::int32_t scope_within(std::int32_t set, std::int32_t host) {
  return -1 - (set * kMostHosts + host);
}
// The world itself, or its ranks on one host.
constexpr bool is_of_world(std::int32_t scope) { return scope <= 0 && scope >= -kMostHosts; }

class OobAllgather {
 public:
  OobAllgather(ControlChannel& channel, int rank) : channel_(&channel), rank_(rank) {}
  // Rank 0, when it has waited so long in one exchange: is told who is missing.
  void tell_of_late(Clock::duration after, std::function<void(const std::vector<int>&)> tell) {
    late_after_ = after;
    tell_of_late_ = std::move(tell);
  }
  // Rank 0: who others wait for. A rank that waits in an exchange is only held up.
  std::vector<int> missing() const;

  // Between two exchanges.
  void use(ControlChannel& channel) { channel_ = &channel; }
  // An exchange ends when this says so, which it is asked after each wake-up of the channel.
  void break_off_when(std::function<bool()> broken_off) { broken_off_ = std::move(broken_off); }

  // Gives parts[i] to the rank of set index i (one part: the same to all), answers theirs by set
  // index. `members` are global ranks, this one among them; every member calls this equally often.
  // Other messages that arrive meanwhile are kept for take_deferred(). kInterrupted when the world
  // ends (the news of it is among the deferred), or when it is broken off. Rank 0, which can tell
  // who is missing, gives up first.
  Result<std::vector<std::string>> exchange(std::int32_t scope,
                                            const std::vector<std::int32_t>& members,
                                            const std::vector<std::string>& parts,
                                            Deadline deadline);

  // Whether the message was one of an exchange; then it has been dealt with. The coordinator's
  // loop passes every message here, since other ranks may be ahead of it.
  bool handle(const Incoming& message);
  // `members` of a scope, for the coordinator to know when an exchange is complete.
  void define_scope(std::int32_t scope, std::vector<std::int32_t> members);
  void forget_scope(std::int32_t scope);

  std::vector<Incoming> take_deferred() { return std::exchange(deferred_, {}); }

 private:
  using Key = std::pair<std::int32_t, std::uint64_t>;  // scope, number
  struct Round {
    std::map<int, std::vector<std::string>> given;  // by global rank
  };

  void contribute(const Key& key, int rank, std::vector<std::string> parts);

  ControlChannel* channel_;
  std::function<bool()> broken_off_ = [] { return false; };
  Clock::duration late_after_ = Clock::duration::max();
  std::function<void(const std::vector<int>&)> tell_of_late_;
  int rank_;
  std::map<std::int32_t, std::vector<std::int32_t>> scopes_;
  std::map<std::int32_t, std::uint64_t> next_number_;
  std::map<Key, Round> rounds_;                      // coordinator: incomplete ones
  std::map<Key, std::vector<std::string>> results_;  // complete, not yet taken
  std::vector<Incoming> deferred_;
};

}  // namespace hora::collectives
