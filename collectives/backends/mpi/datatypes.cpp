// SPDX-License-Identifier: Apache-2.0
// MPI has no 16-bit floats. They travel as pairs of bytes, and operators that call Hora's kernels
// reduce them, so the results equal those of the other backends.
#include "collectives/backends/mpi/datatypes.h"

#include "collectives/backends/mpi/session.h"
#include "collectives/kernels/kernels.h"

namespace hora::collectives::mpi {

namespace {

constexpr int kReductions = 4;  // sum, min, max, product: the order of operator_index()

struct Made {
  bool done = false;
  MPI_Datatype two_bytes = MPI_DATATYPE_NULL;
  MPI_Op half[kReductions] = {MPI_OP_NULL, MPI_OP_NULL, MPI_OP_NULL, MPI_OP_NULL};
  MPI_Op bfloat[kReductions] = {MPI_OP_NULL, MPI_OP_NULL, MPI_OP_NULL, MPI_OP_NULL};
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
    if (!check(MPI_Op_create(functions[i], 1, &operators[i]), "MPI_Op_create", error)) return false;
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
  if (!check(MPI_Type_contiguous(2, MPI_BYTE, &made.two_bytes), "MPI_Type_contiguous", error) ||
      !check(MPI_Type_commit(&made.two_bytes), "MPI_Type_commit", error) ||
      !make_operators<HORA_FLOAT16>(made.half, error) ||
      !make_operators<HORA_BFLOAT16>(made.bfloat, error)) {
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
      return MPI_UINT8_T;
    case HORA_INT8:
      return MPI_INT8_T;
    case HORA_UINT16:
      return MPI_UINT16_T;
    case HORA_INT16:
      return MPI_INT16_T;
    case HORA_INT32:
      return MPI_INT32_T;
    case HORA_INT64:
      return MPI_INT64_T;
    case HORA_FLOAT32:
      return MPI_FLOAT;
    case HORA_FLOAT64:
      return MPI_DOUBLE;
    case HORA_FLOAT16:
    case HORA_BFLOAT16:
      return made.two_bytes;
  }
  return MPI_DATATYPE_NULL;
}

MPI_Op operator_of(hora_dtype dtype, hora_reduce_op op) {
  const int index = operator_index(op);
  if (index < 0) return MPI_OP_NULL;
  if (dtype == HORA_FLOAT16) return made.half[index];
  if (dtype == HORA_BFLOAT16) return made.bfloat[index];
  // A bool is a byte of 0 or 1: the sum is "or", the product "and", as in the kernels.
  if (dtype == HORA_BOOL) return op == HORA_MIN || op == HORA_PRODUCT ? MPI_BAND : MPI_BOR;
  constexpr int kCount = kReductions;
  // Not constexpr: in Open MPI the operators are addresses of objects.
  const MPI_Op operators[kCount] = {MPI_SUM, MPI_MIN, MPI_MAX, MPI_PROD};
  return operators[index];
}

}  // namespace hora::collectives::mpi
