// The fast path of ranks on several hosts: those of a host post in memory that they share; the
// first of them, the leader, passes what they brought to the other leaders, and puts the result
// where all of its host find it.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/control/leader_exchange.h"
#include "collectives/control/leader_plan.h"
#include "collectives/control/shm_fast_path.h"

namespace hora::collectives {

class LeaderFastPath final : public FastPath {
 public:
  // Above, more messages with less in each are faster. What the backends, too, reduce in the order
  // of leader_plan.h.
  static constexpr std::size_t kMostRoom = 16 * 1024;

  // Where everything lies in memory that the ranks of a host share, zeroed at first.
  static std::size_t memory_bytes(const LeaderPlan& plan);

  // `ring` wakes a rank of this host, by its place; `send` carries a message to another leader.
  LeaderFastPath(LeaderPlan plan, void* memory, std::function<void(int)> ring,
                 std::function<void(int, std::string_view)> send);

  int size() const override { return size_; }
  std::size_t room() const override { return room_; }
  char* own_place(std::size_t bytes) override { return board_.own_place(bytes); }
  const char* place_of(int place, std::size_t bytes) const override {
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
  // Of a turn that is decided with a number: the result, until next(). A leader writes it before.
  char* result() const;

  // A leader. Something has come from another one.
  void arrived(int host, std::string message);
  // There is something to do for go_on().
  bool can_go_on();
  // What all of this host have posted, kNothing when they differ: to be called before go_on().
  std::uint64_t posted_here() const { return board_.common(); }
  // Goes on with the turn; at its end all of this host are told. `load`: the turn's, whose result
  // is to be in result(); null when nothing is posted_here(). False: another leader's message makes
  // no sense.
  bool go_on(LeaderExchange::Payload* load);

  // Rank 0 says that somebody waits in that turn.
  void call(std::uint64_t turn) { called_ = std::max(called_, turn); }
  bool called() const { return called_ >= turn(); }
  // Rank 0: that rank says that it has posted in that turn.
  void note_posted(int rank, std::uint64_t turn);

  // Why nothing more will be decided here; empty: it will.
  const std::string& failure() const { return failure_; }
  void fail(std::string why) {
    if (failure_.empty()) failure_ = std::move(why);
  }
  // The connection to that host's leader has ended.
  struct LostLeader {
    int rank;
    std::string how;
  };
  void lost_leader(int host, std::string how);
  // The first of them.
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
  std::uint64_t begun_ = 0;          // the turn that the exchange was begun for last
  std::uint64_t called_ = 0;         // the latest turn in which rank 0 has called
  std::vector<std::uint64_t> told_;  // rank 0: by rank, the latest turn it has posted in
  std::string failure_;
  std::optional<LostLeader> lost_;
  bool attentive_ = false;
};

}  // namespace hora::collectives
