// SPDX-License-Identifier: Apache-2.0
// MPI has no 16-bit floats, which travel as pairs of bytes, and does not say what a minimum does
// with a NaN. Operators that call Hora's kernels reduce these, so the results equal those of the
// other backends.
#include "collectives/backends/mpi/datatypes.h"

#include "collectives/backends/mpi/session.h"
#include "collectives/kernels/kernels.h"

namespace hora::collectives::mpi {

namespace {

constexpr int kReductions = 4;  // sum, min, max, product: the order of operator_index()

struct Made {
  bool done = false;
  MPI_Datatype two_bytes{};
  MPI_Op half[kReductions] = {};
  MPI_Op bfloat[kReductions] = {};
  MPI_Op float32[kReductions] = {};  // the minimum and maximum are used
  MPI_Op float64[kReductions] = {};
};
Made made;  // never freed: lives as long as MPI does

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

}  // namespace hora::collectives::mpi
