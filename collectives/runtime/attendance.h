// SPDX-License-Identifier: Apache-2.0
// Who has come to a meeting that does not become complete. A rank that waits longer than usual
// leaves a note in the store: rank 0, or the leader by which its messages would go, may be what is
// missing. Who gives the meeting up says there which ranks have not come, so that all say the same.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "rendezvous/base/result.h"
#include "rendezvous/store.h"

namespace hora::collectives {

class Attendance {
 public:
  // `store` outlives this. `meeting_key`: as rank 0 publishes its address under.
  Attendance(rendezvous::Store& store, const std::string& meeting_key, int rank, int size);

  // This rank has come. Once; a store that does not answer costs a name in a message, no more.
  void leave_note();
  // Gives the meeting up for all, for the ranks that `unseen` has to offer and that left no note.
  Error give_up(const std::vector<int>& unseen);
  // As give_up() for a rank that saw no other.
  Error give_up();
  // What whoever gave up has said.
  std::optional<Error> told();

 private:
  Error describe(const std::vector<int>& unseen) const;

  rendezvous::Store& store_;
  std::string place_;  // of the notes
  std::string told_key_;
  int rank_;
  int size_;
  bool noted_ = false;
};

}  // namespace hora::collectives
