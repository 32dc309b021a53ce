// Allreduce without a copy in between: each rank reads the others' tensors where they lie
// (process_vm_readv), which the kernel allows among processes of one user unless it is told not to.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/backends/shm/rings.h"
#include "collectives/backends/shm/work.h"

namespace hora::collectives::shm {

class SingleCopy {
 public:
  explicit SingleCopy(Rings& rings) : rings_(rings) {}

  // What this needs of each rank's shared memory.
  static std::int64_t desk_bytes();

  // Collective, once the rings are open: whether every rank can read from every other one. False
  // with an error only when the ranks cannot talk. Tells people by a note.
  bool try_out(const GroupContext& group, ErrorText& error);
  // What a host says to it before there are ranks, for people.
  static void host_note(ErrorText& note) noexcept;
  bool possible() const { return possible_; }

  // Whether the step is of a size and kind for it; the same on all ranks.
  bool suits(const Work& work) const;
  // kElsewhere: nothing has been done, on no rank, because some memory cannot be read by others (as
  // a device's may not).
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
