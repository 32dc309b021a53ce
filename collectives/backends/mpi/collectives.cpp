// SPDX-License-Identifier: Apache-2.0
#include "collectives/backends/mpi/collectives.h"

#include <algorithm>
#include <climits>
#include <cstddef>

#include "collectives/backends/mpi/session.h"
#include "collectives/kernels/kernels.h"

namespace hora::collectives::mpi {

// MPI has no 16-bit floats, which travel as pairs of bytes, and does not say what a minimum does
// with a NaN. Operators that call Hora's kernels reduce these, so the results equal those of the
// other backends.

namespace {

constexpr int kReductions = 4;  // sum, min, max, product: the order of operator_index()

struct CreatedTypes {
  bool done = false;
  MPI_Datatype two_bytes{};
  MPI_Op half[kReductions] = {};
  MPI_Op bfloat[kReductions] = {};
  MPI_Op float32[kReductions] = {};  // the minimum and maximum are used
  MPI_Op float64[kReductions] = {};
};
CreatedTypes made;  // never freed: lives as long as MPI does

// MPI passes a reduction no context, hence one function per dtype and operator. MPI combines given
// op kept into kept; the argument order keeps the kernels' operand order.
template <hora_dtype dtype, hora_reduce_op op>
void reduce(void* given, void* kept, int* count, MPI_Datatype*) {
  reduce_function(dtype, op)(kept, given, kept, *count);
}

template <hora_dtype dtype>
bool make_operators(MPI_Op (&operators)[kReductions], ErrorText& error) {
  MPI_User_function* const functions[kReductions] = {
      reduce<dtype, HORA_SUM>, reduce<dtype, HORA_MIN>, reduce<dtype, HORA_MAX>,
      reduce<dtype, HORA_PRODUCT>};
  for (int i = 0; i < kReductions; ++i) {
    // 1: commutative, which lets MPI choose the order.
    if (!check(site.MPI_Op_create(functions[i], 1, &operators[i]), "MPI_Op_create", error))
      return false;
  }
  return true;
}

int operator_index(hora_reduce_op op) {
  switch (op) {
    case HORA_MIN:
      return 1;
    case HORA_MAX:
      return 2;
    case HORA_PRODUCT:
      return 3;
    // The runtime builds Adasum from alltoall and allgather (algorithms/adasum.h).
    case HORA_ADASUM:
      return -1;
    default:
      return 0;
  }
}

}  // namespace

bool make_datatypes(ErrorText& error) {
  // Several process sets share the types and operators.
  if (made.done) return true;
  if (!check(site.MPI_Type_contiguous(2, site.byte, &made.two_bytes), "MPI_Type_contiguous",
             error) ||
      !check(site.MPI_Type_commit(&made.two_bytes), "MPI_Type_commit", error) ||
      !make_operators<HORA_FLOAT16>(made.half, error) ||
      !make_operators<HORA_BFLOAT16>(made.bfloat, error) ||
      !make_operators<HORA_FLOAT32>(made.float32, error) ||
      !make_operators<HORA_FLOAT64>(made.float64, error)) {
    return false;
  }
  made.done = true;
  return true;
}

MPI_Datatype datatype_of(hora_dtype dtype) {
  switch (dtype) {
    // A bool is a byte to MPI, too; operator_of() gives it logical operators.
    case HORA_UINT8:
    case HORA_BOOL:
      return site.uint8;
    case HORA_INT8:
      return site.int8;
    case HORA_UINT16:
      return site.uint16;
    case HORA_INT16:
      return site.int16;
    case HORA_INT32:
      return site.int32;
    case HORA_INT64:
      return site.int64;
    case HORA_FLOAT32:
      return site.float32;
    case HORA_FLOAT64:
      return site.float64;
    case HORA_FLOAT16:
    case HORA_BFLOAT16:
      return made.two_bytes;
  }
  return site.datatype_null;
}

MPI_Op operator_of(hora_dtype dtype, hora_reduce_op op) {
  const int index = operator_index(op);
  if (index < 0) return site.op_null;
  if (dtype == HORA_FLOAT16) return made.half[index];
  if (dtype == HORA_BFLOAT16) return made.bfloat[index];
  const bool selects = op == HORA_MIN || op == HORA_MAX;
  if (selects && dtype == HORA_FLOAT32) return made.float32[index];
  if (selects && dtype == HORA_FLOAT64) return made.float64[index];
  // A bool is a byte of 0 or 1: the sum is "or", the product "and", as in the kernels.
  if (dtype == HORA_BOOL) return op == HORA_MIN || op == HORA_PRODUCT ? site.bit_and : site.bit_or;
  constexpr int kCount = kReductions;
  const MPI_Op operators[kCount] = {site.sum, site.min, site.max, site.product};
  return operators[index];
}

// MPI 3 takes counts and offsets as int. Long operations are cut into parts; where the offsets of a
// vector operation do not fit, a loop of simpler operations replaces it. All ranks have to choose
// the same way.

namespace {

// The most elements of one MPI call: a power of two below INT_MAX, so that parts stay aligned.
constexpr std::int64_t kMostElements = INT64_C(1) << 30;

// MPI counts in elements; the offsets below are in bytes.
std::int64_t bytes_of(MPI_Datatype type) {
  int bytes = 0;
  site.MPI_Type_size(type, &bytes);
  return bytes;
}

const void* at(const void* data, std::int64_t bytes) {
  return static_cast<const char*>(data) + bytes;
}
void* at(void* data, std::int64_t bytes) { return static_cast<char*>(data) + bytes; }

// Calls `part(offset, count)` for pieces of at most kMostElements.
template <typename Part>
bool in_parts(std::int64_t count, Part&& part) {
  for (std::int64_t done = 0; done < count; done += kMostElements) {
    if (!part(done, static_cast<int>(std::min(kMostElements, count - done)))) return false;
  }
  return true;
}

}  // namespace

Collectives::~Collectives() {
  int finalized = 0;
  // MPI_Comm_free() is collective: it would wait for ranks that are gone.
  if (aborted_ || is_given_up() || site.MPI_Finalized(&finalized) != MPI_SUCCESS || finalized != 0)
    return;
  site.MPI_Comm_free(&communicator_);
}

// MPI_Wait could not be abandoned, hence the loop in wait().
bool Collectives::finish(int code, MPI_Request& request, const char* call, ErrorText& error) {
  return check(code, call, error) && wait(request, aborted_, Deadline::max(), call, error);
}

bool Collectives::allreduce(const void* input, void* output, std::int64_t count, MPI_Datatype type,
                            MPI_Op op, ErrorText& error) {
  const std::int64_t width = bytes_of(type);
  return in_parts(count, [&](std::int64_t from, int part) {
    // MPI forbids that the two buffers are the same address.
    const void* source = input == output ? MPI_IN_PLACE : at(input, from * width);
    MPI_Request request = site.request_null;
    const int code = site.MPI_Iallreduce(source, at(output, from * width), part, type, op,
                                         communicator_, &request);
    return finish(code, request, "MPI_Iallreduce", error);
  });
}

bool Collectives::broadcast(void* data, std::int64_t count, MPI_Datatype type, int root,
                            ErrorText& error) {
  const std::int64_t width = bytes_of(type);
  return in_parts(count, [&](std::int64_t from, int part) {
    MPI_Request request = site.request_null;
    const int code =
        site.MPI_Ibcast(at(data, from * width), part, type, root, communicator_, &request);
    return finish(code, request, "MPI_Ibcast", error);
  });
}

bool Collectives::lay_out(const std::int64_t* counts, Layout& layout) const {
  std::int64_t offset = 0;
  for (int i = 0; i < size_; ++i) {
    // The counts fit if the offsets do, since they are not negative.
    if (offset + counts[i] > INT_MAX) return false;
    layout.counts.push_back(static_cast<int>(counts[i]));
    layout.offsets.push_back(static_cast<int>(offset));
    offset += counts[i];
  }
  return true;
}

bool Collectives::allgather(const void* input, void* output, const std::int64_t* counts,
                            MPI_Datatype type, ErrorText& error) {
  const std::int64_t width = bytes_of(type);
  Layout layout;
  if (lay_out(counts, layout)) {
    MPI_Request request = site.request_null;
    const int code = site.MPI_Iallgatherv(
        input == nullptr ? MPI_IN_PLACE : input, static_cast<int>(counts[index_]), type, output,
        layout.counts.data(), layout.offsets.data(), type, communicator_, &request);
    return finish(code, request, "MPI_Iallgatherv", error);
  }
  // The counts are the same on all ranks, so all come here: one broadcast per rank.
  std::int64_t offset = 0;
  for (int root = 0; root < size_; ++root) {
    void* const place = at(output, offset * width);
    // A broadcast has only one buffer: put this rank's part in place first.
    if (root == index_ && input != nullptr) {
      std::copy_n(static_cast<const char*>(input), counts[root] * width, static_cast<char*>(place));
    }
    if (!broadcast(place, counts[root], type, root, error)) return false;
    offset += counts[root];
  }
  return true;
}

bool Collectives::alltoall(const void* input, const std::int64_t* send_counts, void* output,
                           const std::int64_t* receive_counts, MPI_Datatype type,
                           ErrorText& error) {
  Layout send;
  Layout receive;
  // The ranks have to choose the same way, and no rank knows all counts: agree on the minimum.
  int fits = lay_out(send_counts, send) && lay_out(receive_counts, receive) ? 1 : 0;
  if (!allreduce(&fits, &fits, 1, site.native_int, site.min, error)) return false;
  if (fits == 0) {
    return alltoall_by_messages(input, send_counts, output, receive_counts, type, error);
  }
  MPI_Request request = site.request_null;
  const int code = site.MPI_Ialltoallv(input, send.counts.data(), send.offsets.data(), type, output,
                                       receive.counts.data(), receive.offsets.data(), type,
                                       communicator_, &request);
  return finish(code, request, "MPI_Ialltoallv", error);
}

// MPI_Ialltoallv without its limit: one message per pair and part, in elements of up to 2^30.
bool Collectives::alltoall_by_messages(const void* input, const std::int64_t* send_counts,
                                       void* output, const std::int64_t* receive_counts,
                                       MPI_Datatype type, ErrorText& error) {
  const std::int64_t width = bytes_of(type);
  constexpr int kTag = 1;
  std::vector<MPI_Request> requests;
  std::int64_t send_from = 0;
  std::int64_t receive_to = 0;
  bool good = true;
  for (int peer = 0; peer < size_ && good; ++peer) {
    // Messages of one pair arrive in the order of their posts, so one tag serves all parts.
    good = in_parts(receive_counts[peer], [&](std::int64_t done, int part) {
      return check(site.MPI_Irecv(at(output, (receive_to + done) * width), part, type, peer, kTag,
                                  communicator_, &requests.emplace_back(site.request_null)),
                   "MPI_Irecv", error);
    });
    good =
        good && in_parts(send_counts[peer], [&](std::int64_t done, int part) {
          return check(site.MPI_Isend(at(input, (send_from + done) * width), part, type, peer, kTag,
                                      communicator_, &requests.emplace_back(site.request_null)),
                       "MPI_Isend", error);
        });
    // Offsets are 64-bit here, which is the point of this function.
    send_from += send_counts[peer];
    receive_to += receive_counts[peer];
  }
  // All requests are under way at once; the order of the waits does not matter.
  for (MPI_Request& request : requests) {
    good = good && wait(request, aborted_, Deadline::max(), "MPI_Isend and MPI_Irecv", error);
  }
  return good;
}

bool Collectives::reduce_scatter(const void* input, void* output, const std::int64_t* counts,
                                 MPI_Datatype type, MPI_Op op, ErrorText& error) {
  const std::int64_t width = bytes_of(type);
  Layout layout;
  if (lay_out(counts, layout)) {
    MPI_Request request = site.request_null;
    const int code = site.MPI_Ireduce_scatter(input, output, layout.counts.data(), type, op,
                                              communicator_, &request);
    return finish(code, request, "MPI_Ireduce_scatter", error);
  }
  // The offsets do not fit: one reduction per rank, in the order of the ranks.
  std::int64_t offset = 0;
  for (int root = 0; root < size_; ++root) {
    const bool good = in_parts(counts[root], [&](std::int64_t from, int part) {
      MPI_Request request = site.request_null;
      const int code =
          site.MPI_Ireduce(at(input, (offset + from) * width), at(output, from * width), part, type,
                           op, root, communicator_, &request);
      return finish(code, request, "MPI_Ireduce", error);
    });
    if (!good) return false;
    offset += counts[root];
  }
  return true;
}

// Non-blocking as well, so that an abort can end the wait.
bool Collectives::barrier(ErrorText& error) {
  MPI_Request request = site.request_null;
  return finish(site.MPI_Ibarrier(communicator_, &request), request, "MPI_Ibarrier", error);
}

}  // namespace hora::collectives::mpi
