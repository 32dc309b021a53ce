// SPDX-License-Identifier: Apache-2.0
// The control channel of a rank, with the messages that have come by it and are still to be
// handled. Belongs to the thread that drives the runtime.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "collectives/control/control_channel.h"
#include "collectives/control/leader_fast_path.h"
#include "collectives/control/messages.h"
#include "collectives/control/oob_allgather.h"

namespace hora::collectives {

// The sender is lost, or says that the world cannot go on.
inline bool is_failure_notice(const Incoming& incoming) {
  return incoming.gone || ends_the_world(kind_of(incoming.bytes));
}

class Mailbox {
 public:
  Mailbox(std::unique_ptr<ControlChannel> channel, int rank)
      : channel_(std::move(channel)), oob_(*channel_, rank) {}
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  ControlChannel& channel() const { return *channel_; }
  // The messages of the ranks during setup.
  OobAllgather& oob() { return oob_; }
  // Before the first message: `extend` may put another channel around this one.
  Status extend(const std::function<Status(std::unique_ptr<ControlChannel>&)>& extend) {
    Status extended = extend(channel_);
    oob_.use(*channel_);
    return extended;
  }
  // Null where the fast path is not between hosts.
  LeaderFastPath* leaders() const {
    FastPath* const fast_path = channel_->fast_path();
    return fast_path == nullptr ? nullptr : fast_path->between_hosts();
  }

  // Waits for messages, or for channel().wake(), until the deadline. Not when some were put aside
  // during an exchange.
  void wait(Deadline deadline) {
    std::vector<Incoming> deferred = oob_.take_deferred();
    if (!deferred.empty()) deadline = kNoWait;
    for (Incoming& each : channel_->poll(deadline)) deferred.push_back(std::move(each));
    for (Incoming& each : deferred) {
      if (each.gone) ++gone_count_;
      waiting_.push_back(std::move(each));
    }
  }
  bool empty() const { return waiting_.empty(); }
  Incoming take() {
    Incoming first = std::move(waiting_.front());
    waiting_.pop_front();
    return first;
  }
  const std::deque<Incoming>& waiting() const { return waiting_; }
  void clear() { waiting_.clear(); }
  // Peers whose connection has ended.
  int gone_count() const { return gone_count_; }

 private:
  std::unique_ptr<ControlChannel> channel_;
  OobAllgather oob_;
  std::deque<Incoming> waiting_;
  int gone_count_ = 0;
};

}  // namespace hora::collectives
