// SPDX-License-Identifier: Apache-2.0
// Maps Hora's dtypes and reductions to NCCL's. What NCCL does not know moves as bytes.
#pragma once

#include <nccl.h>

#include <cstdint>

#include "hora/hora.h"

namespace hora::collectives::nccl {

inline ncclDataType_t type_of(hora_dtype dtype) {
  switch (dtype) {
    case HORA_INT8:
      return ncclInt8;
    case HORA_INT32:
      return ncclInt32;
    case HORA_INT64:
      return ncclInt64;
    case HORA_FLOAT16:
      return ncclFloat16;
    case HORA_FLOAT32:
      return ncclFloat32;
    case HORA_FLOAT64:
      return ncclFloat64;
    case HORA_BFLOAT16:
      return ncclBfloat16;
    default:
      return ncclUint8;
  }
}

inline ncclRedOp_t operator_of(hora_dtype dtype, hora_reduce_op op) {
  if (dtype == HORA_BOOL) return op == HORA_MIN || op == HORA_PRODUCT ? ncclMin : ncclMax;
  switch (op) {
    case HORA_MIN:
      return ncclMin;
    case HORA_MAX:
      return ncclMax;
    case HORA_PRODUCT:
      return ncclProd;
    default:
      return ncclSum;
  }
}

// The timeline's name of an operation.
inline const char* activity_name(std::int32_t operation) {
  switch (static_cast<hora_operation>(operation)) {
    case HORA_ALLGATHER:
      return "NCCL_ALLGATHER";
    case HORA_BROADCAST:
      return "NCCL_BCAST";
    case HORA_ALLTOALL:
      return "NCCL_ALLTOALL";
    case HORA_REDUCESCATTER:
      return "NCCL_REDUCESCATTER";
    default:
      return "NCCL_ALLREDUCE";
  }
}

}  // namespace hora::collectives::nccl
