// SPDX-License-Identifier: Apache-2.0
// The collectives of MPI, and its datatypes for ours.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "collectives/backend.h"
#include "collectives/backends/mpi/session.h"

namespace hora::collectives::mpi {

// Maps Hora's dtypes and reductions to MPI's. MPI has no 16-bit floats, so Hora brings their
// reductions.

// Creates what MPI lacks, once; call it after initialise(), from one thread at a time.
bool make_datatypes(ErrorText& error);
MPI_Datatype datatype_of(hora_dtype dtype);
// Returns MPI_OP_NULL where MPI does not support this reduction (ADASUM).
MPI_Op operator_of(hora_dtype dtype, hora_reduce_op op);

// MPI's collectives with 64-bit counts, in the non-blocking form, so that a blocked one can be
// abandoned. One thread at a time; abort() from any.

class Collectives {
 public:
  // Takes over `communicator`.
  Collectives(MPI_Comm communicator, int index, int size)
      : communicator_(communicator), index_(index), size_(size) {
    set_broken_off(false);
  }
  ~Collectives();
  Collectives(const Collectives&) = delete;
  Collectives& operator=(const Collectives&) = delete;

  int index() const { return index_; }
  int size() const { return size_; }
  void abort() {
    aborted_ = true;
    set_broken_off(true);
  }

  // Counts are elements of `type`. `input` may be `output`.
  bool allreduce(const void* input, void* output, std::int64_t count, MPI_Datatype type, MPI_Op op,
                 ErrorText& error);
  bool broadcast(void* data, std::int64_t count, MPI_Datatype type, int root, ErrorText& error);
  // With input == nullptr this rank's part is already in position in `output`.
  bool allgather(const void* input, void* output, const std::int64_t* counts, MPI_Datatype type,
                 ErrorText& error);
  bool alltoall(const void* input, const std::int64_t* send_counts, void* output,
                const std::int64_t* receive_counts, MPI_Datatype type, ErrorText& error);
  // `input` must not be `output`.
  bool reduce_scatter(const void* input, void* output, const std::int64_t* counts,
                      MPI_Datatype type, MPI_Op op, ErrorText& error);
  bool barrier(ErrorText& error);

 private:
  struct Layout {  // counts and offsets as MPI takes them
    std::vector<int> counts;
    std::vector<int> offsets;
  };
  // False when a count or an offset does not fit an int.
  bool lay_out(const std::int64_t* counts, Layout& layout) const;
  bool alltoall_by_messages(const void* input, const std::int64_t* send_counts, void* output,
                            const std::int64_t* receive_counts, MPI_Datatype type,
                            ErrorText& error);
  // Checks the return code of a call that starts an operation, then waits until the operation is
  // done.
  bool finish(int code, MPI_Request& request, const char* call, ErrorText& error);

  MPI_Comm communicator_;
  int index_;
  int size_;
  std::atomic<bool> aborted_{false};
};

}  // namespace hora::collectives::mpi
