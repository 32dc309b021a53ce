// SPDX-License-Identifier: Apache-2.0
// The fast path of ranks on several hosts. The ranks of a host post in memory that they share. The
// first of them, the leader, exchanges what they have posted with the other leaders and puts the
// result where all ranks of its host find it.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/control/leader_exchange.h"
#include "collectives/control/shm_fast_path.h"

namespace hora::collectives {

class LeaderFastPath final : public FastPath {
 public:
  // The largest tensor, in bytes. Up to there, the backends reduce in the order of LeaderPlan,
  // too.
  static constexpr std::size_t kMostRoom = 128 * 1024;
  // Where a host gives its share to a partner, that one carries the tensor twice more, so the links
  // are the limit soon.
  static constexpr std::size_t kMostUneven = 64 * 1024;

  // The size in bytes of the memory that the ranks of this host share, which starts zeroed.
  static std::size_t memory_bytes(const LeaderPlan& plan);

  // `memory` must outlive this object. `ring` wakes a rank of this host, by its place; `send`
  // carries a message to the leader of another host.
  LeaderFastPath(LeaderPlan plan, void* memory, std::function<void(int)> ring,
                 std::function<void(int, std::string_view)> send);

  int size() const override { return size_; }
  std::size_t room() const override { return room_; }
  char* own_place(std::size_t bytes) override { return board_.own_place(bytes); }
  char* place_of(int place, std::size_t bytes) const override {
    return board_.place_of(place, bytes);
  }

  void post(std::uint64_t number) override { board_.post(number); }
  bool posted() const override { return board_.posted(); }
  bool decided() override;
  bool has_posted(int rank) const override;
  std::uint64_t common() const override;
  void next() override { board_.next(); }
  void listen(bool listening) override { board_.listen(listening); }
  bool called_upon() override;
  bool has_work() override;
  void set_attentive(bool attentive) override { attentive_ = attentive; }
  LeaderFastPath* between_hosts() override { return this; }

  const LeaderPlan& plan() const { return plan_; }
  std::uint64_t turn() const { return board_.turn(); }
  // The result of a turn that was decided with a number, valid until next(). The leader writes it
  // first.
  char* result() const;

  // Leader only: delivers a message from another leader.
  void arrived(int host, std::string message);
  // True when go_on() can make progress.
  bool can_go_on();
  // What all ranks of this host have posted, kNothing when they differ; for use before go_on().
  std::uint64_t posted_here() const { return board_.common(); }
  // Advances the turn; at its end wakes all ranks of this host. `load` is the turn's payload, which
  // leaves its result in result(); null when posted_here() is kNothing. False when a message of
  // another leader is malformed.
  bool go_on(LeaderExchange::Payload* load);

  // Rank 0 reports that a rank waits in that turn.
  void call(std::uint64_t turn) { called_ = std::max(called_, turn); }
  bool called() const { return called_ >= turn(); }
  // On rank 0: that rank reports that it has posted in that turn.
  void note_posted(int rank, std::uint64_t turn);

  // Why the fast path can decide nothing more; empty while it can.
  const std::string& failure() const { return failure_; }
  void fail(std::string why) {
    if (failure_.empty()) failure_ = std::move(why);
  }
  // Records that the connection to that host's leader has ended.
  struct LostLeader {
    int rank;
    std::string how;
  };
  void lost_leader(int host, std::string how);
  // The first leader whose connection ended, or nothing.
  const std::optional<LostLeader>& lost() const { return lost_; }

 private:
  struct Release;

  Release& release() const { return *release_; }

  LeaderPlan plan_;
  int size_ = 0;
  std::size_t room_ = 0;
  ShmFastPath board_;
  Release* release_ = nullptr;
  std::function<void(int)> ring_;
  LeaderExchange exchange_;
  std::uint64_t begun_ = 0;   // the latest turn for which the exchange has begun
  std::uint64_t called_ = 0;  // the latest turn in which rank 0 has asked for a post
  std::vector<std::uint64_t>
      reported_;  // on rank 0: the latest turn in which each rank reported a post
  std::string failure_;
  std::optional<LostLeader> lost_;
  bool attentive_ = false;
};

}  // namespace hora::collectives
