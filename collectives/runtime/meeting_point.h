// SPDX-License-Identifier: Apache-2.0
// Where the ranks of a job meet without a launcher, and which of them have come.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "collectives/control/tcp_control.h"
#include "collectives/launcher_bootstrap.h"
#include "collectives/runtime/communicator.h"
#include "collectives/runtime/settings.h"
#include "collectives/runtime/started_world.h"
#include "rendezvous/base/result.h"
#include "rendezvous/store.h"

namespace hora::collectives {

// The ranks that have come to a meeting that does not become complete. A rank that waits longer
// than usual leaves a note in the store: rank 0, or the leader that relays its messages, may be the
// missing one. The rank that gives the meeting up writes the missing ranks there, so that all
// report the same.

class Attendance {
 public:
  // `store` outlives this. `meeting_key`: as rank 0 publishes its address under.
  Attendance(rendezvous::Store& store, const std::string& meeting_key, int rank, int size);

  // This rank has come. Once; a store that does not answer costs a name in a message, no more. An
  // error if another process has left a note as the same rank: then the meeting is given up.
  Status leave_note();
  // Gives the meeting up for all, for the ranks that `unseen` has to offer and that left no note.
  Error give_up(const std::vector<int>& unseen);
  // As give_up() for a rank that saw no other.
  Error give_up();
  // Gives the meeting up: two processes are the same rank, this one and `other`.
  Error give_up_twice(const std::string& other);
  // The message of the rank that gave up.
  std::optional<Error> abandoned_reason();

 private:
  Error describe(const std::vector<int>& unseen) const;

  rendezvous::Store& store_;
  std::string place_;  // of the notes
  std::string reported_key_;
  int rank_;
  int size_;
  bool noted_ = false;
};

// The processes of a world that torchrun, srun or jsrun started learn of each other at a rendezvous
// that rank 0 serves where the others can compute that it is.

// Of the world of this process, which is the same for as long as the process lives. Settings: the
// timeout, and the user's own token.
const LauncherBootstrap& meeting_point(const StartedWorld& world, const Settings& settings);

// How the ranks of a world find each other in the store and open their control connections.

// Blocks until all ranks have met. When some do not come within settings.start_timeout, the error
// (kTimedOut) names them, the same on all that came: rank 0 decides, and the others wait a little
// longer. `rank_info`: what the others are to know of this rank.
Result<ControlWorld> meet(const Communicator::Start& start, std::string rank_info);

}  // namespace hora::collectives
