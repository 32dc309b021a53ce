// SPDX-License-Identifier: Apache-2.0
// The control channel over TCP: a star whose centre is rank 0; in a large job a tree whose root is
// rank 0 (tree_node.h).
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collectives/control/control_channel.h"
#include "rendezvous/base/address.h"
#include "rendezvous/os/fd.h"

namespace hora::collectives {

struct ControlIdentity {
  int rank = 0;
  int size = 1;
  std::string job;
  std::string token;      // a secret; may be empty
  std::string rank_info;  // what the others are to know of this rank, opaque here
};

struct ControlWorld {
  std::unique_ptr<ControlChannel> channel;
  std::vector<std::string> rank_infos;  // by rank
};

// A listening socket for the workers, before its address is published.
Result<os::Fd> open_control_listener(const IpAddress& address);

// What rank 0 asks while it waits for the others. Both may be empty.
struct AbsentReport {
  // Twice a second: whether some of them will never come.
  std::function<bool()> is_void;
  // At the end, once: what is to be said, when these have not come.
  std::function<Error(const std::vector<int>& unseen)> give_up;
};

// Rank 0: waits until every other rank has come and authenticated; otherwise (kTimedOut, or
// kUnavailable when the meeting is void) it informs those that have come.
Result<ControlWorld> gather_workers(os::Fd listener, const ControlIdentity& self, Deadline deadline,
                                    AbsentReport absent_report = {});
// The same in a large job: some ranks come with those below them.
Result<ControlWorld> gather_tree(os::Fd listener, const ControlIdentity& self, Deadline deadline,
                                 AbsentReport absent_report = {});
// The next rank on the way to rank 0.
struct WayToRank0 {
  Endpoint where;
  std::string over;  // for people
  os::Fd listener;   // where the ranks come that use this one as a relay; none: no rank does
  // The way to rank 0 is open when this rank is admitted. From then on it waits this long for the
  // welcome, if the deadline is not later.
  std::chrono::milliseconds timeout{0};
  // Called when it is not let in within that time, once.
  std::function<void()> on_late = {};
  std::chrono::milliseconds late_after{0};
  // Called when no connection came about. Refused: that was the answer, and not silence.
  std::function<void(bool refused)> on_no_connection = {};
};
// Every other rank.
Result<ControlWorld> join_tree(WayToRank0 way, const ControlIdentity& self, Deadline deadline);

}  // namespace hora::collectives
