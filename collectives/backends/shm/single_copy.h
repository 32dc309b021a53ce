// SPDX-License-Identifier: Apache-2.0
// Allreduce without an intermediate copy: each rank reads the others' tensors where they are
// (process_vm_readv), which the kernel allows among processes of one user unless configured
// otherwise.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/backends/shm/rings.h"
#include "collectives/backends/shm/work.h"

namespace hora::collectives::shm {

class SingleCopy {
 public:
  explicit SingleCopy(Rings& rings) : rings_(rings) {}

  // How many bytes of each rank's shared memory this class needs.
  static std::int64_t desk_bytes();

  // Collective, after the rings are open: finds out whether every rank can read from every other
  // one and records a note. False, with an error, only when the ranks cannot communicate.
  bool try_out(const GroupContext& group, ErrorText& error);
  // Describes what the host allows, for people, before there are ranks.
  static void host_note(ErrorText& note) noexcept;
  bool possible() const { return possible_; }

  // Whether the step's size and kind suit this class; the same on all ranks.
  bool suits(const Work& work) const;
  // kElsewhere: no rank has done anything, because other processes cannot read some memory (such as
  // a device's).
  enum class Outcome { kDone, kElsewhere, kFailed };
  Outcome allreduce(const Work& work, ErrorText& error);

 private:
  struct Desk;

  Desk& desk(int rank) const;
  bool can_be_read(const Work& work) const;
  bool read_and_reduce(const Work& work, ErrorText& error);
  bool nobody_has_given_up() const;
  bool reduce_own(const Work& work, ErrorText& error);
  bool read(int rank, bool outputs, const Work& work, std::int64_t begin, std::int64_t end,
            char* target, ErrorText& error);

  Rings& rings_;
  bool possible_ = false;
  std::vector<char> scratch_;
};

}  // namespace hora::collectives::shm
