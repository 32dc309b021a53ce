// SPDX-License-Identifier: Apache-2.0
// How ranks agree to shut down, and what keeps one back.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/negotiation/root_cause.h"
#include "collectives/runtime/backend_pool.h"
#include "collectives/runtime/interruption.h"
#include "collectives/runtime/mailbox.h"
#include "collectives/runtime/world.h"
#include "collectives/trace/observer.h"

namespace hora::collectives {

// Who keeps back what others say in a large job, where messages go through the leaders of the
// hosts.

// The leaders among `stopped` that relay messages of a rank of `missing` to rank 0: the leader of
// its host, and the leaders above that (control/tree_node.h). `hosts`: host numbers by rank.
std::vector<int> who_keeps_back(const std::vector<int>& stopped,
                                const std::vector<std::int32_t>& missing,
                                const std::vector<std::int32_t>& hosts);

// How the world of a rank ends: agreed by all, or because something broke; then for which reason,
// the same on all ranks. Rank 0 weighs its observations and messages (negotiation/root_cause.h),
// its decision is final. Belongs to the thread that drives the runtime, except where any thread is
// allowed.

class Shutdown {
 public:
  // Finishes all operations that are under way, or will come, for this reason. Once or more.
  using FailOperations = std::function<void(const std::string& text)>;

  // The referenced objects outlive this.
  Shutdown(const World& world, Mailbox& mailbox, BackendPool& pool, Observer& observer,
           FailOperations fail_operations);

  bool running() const { return state_ == State::kRunning; }
  // The world has shut down or broken, and every operation is finished. Any thread.
  bool ended() const { return state_ != State::kRunning; }
  // The reason, as all ranks get it.
  const std::string& text() const { return text_; }

  // Any thread: this rank may be blocked in a collective, which will not end well. These ranks, if
  // any, have given no sign of life.
  void interrupt(const std::vector<int>& silent);
  // Any thread: the world is to end without the consent of the others.
  void stop_now(std::string reason);
  const Interruption& interruption() const { return interruption_; }
  std::vector<int> silent_ranks() const { return interruption_.silent_ranks(); }

  // That rank has asked for the end: all leave together. Everything agreed before has been run
  // here.
  void leave(int who);
  // Rank 0: that rank has done all that was agreed before the end.
  void note_finished(int rank);

  // This rank's knowledge about the end from others.
  void handle_failure_notice(const Incoming& incoming);
  // The data plane often notices first that a peer is gone, but does not know which one began. The
  // control plane does. If it began here there is nothing to wait for.
  void data_plane_failed(const std::string& text, Origin origin = Origin::kUnknown);
  // The common setup of the ranks failed.
  void data_plane_failed(const Error& error);
  // This rank cannot go on, for a reason of its own.
  void give_up(const std::string& text);
  // These ranks do not answer while others wait for them.
  void end_for_silence(const std::string& during, const std::vector<int>& silent);
  // The world is unusable, for this reason. Rank 0 sends it to all.
  void end_world(const std::string& text);

  // After the end: gives the other ranks time to learn of it.
  void linger();

 private:
  enum class State { kRunning, kLeaving, kEnded };

  bool coordinates() const { return world_.coordinates(); }
  bool stop_asked() const { return interruption_.stop_reason().has_value(); }
  void leave_without(const Incoming& incoming);
  void note_evidence(const Incoming& incoming);
  void end_world_without_way(std::string_view lost);
  void look_for_evidence(Deadline deadline);
  void wait_for_failure_notice(Deadline deadline);
  void notify_rank_0(ControlMessage kind, const std::string& text);
  void fail_everything(const std::string& text);
  void leave_fast_path();
  void look_for_late_ranks();
  std::string list_missing(const std::vector<int>& missing) const;

  const World& world_;
  Mailbox& mailbox_;
  BackendPool& pool_;
  Observer& observer_;
  FailOperations fail_operations_;
  Interruption interruption_;
  std::atomic<State> state_{State::kRunning};
  std::vector<char> finished_;  // rank 0, leaving: by rank
  RootCause root_cause_;        // rank 0
  std::string text_;            // why the world ended, once it has
};

}  // namespace hora::collectives
