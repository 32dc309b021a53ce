// SPDX-License-Identifier: Apache-2.0
// The site's MPI library, opened at run time: the module loads on a host without it and can say
// what is missing. The build decides by its mpi.h which kind of MPI that is.
#pragma once

#include <mpi.h>

#include "collectives/backend.h"

namespace hora::collectives::mpi {

// The functions' names as the library exports them; MPI's constants for datatypes and the like,
// with the objects that they are in Open MPI. In MPICH they are numbers.
// clang-format off
#define HORA_MPI_FUNCTIONS(X)                                                               \
  X(MPI_Init_thread) X(MPI_Initialized) X(MPI_Finalize) X(MPI_Finalized)                    \
  X(MPI_Query_thread) X(MPI_Get_library_version) X(MPI_Error_string)                        \
  X(MPI_Comm_rank) X(MPI_Comm_size) X(MPI_Comm_group) X(MPI_Comm_free)                      \
  X(MPI_Comm_idup) X(MPI_Comm_create_group) X(MPI_Comm_split_type)                          \
  X(MPI_Comm_set_errhandler) X(MPI_Group_incl) X(MPI_Group_free)                            \
  X(MPI_Type_contiguous) X(MPI_Type_commit) X(MPI_Type_size) X(MPI_Op_create)               \
  X(MPI_Bcast) X(MPI_Isend) X(MPI_Irecv) X(MPI_Test)                                        \
  X(MPI_Iallreduce) X(MPI_Ireduce) X(MPI_Ireduce_scatter) X(MPI_Ibcast) X(MPI_Ibarrier)     \
  X(MPI_Iallgather) X(MPI_Iallgatherv) X(MPI_Ialltoallv)
#define HORA_MPI_CONSTANTS(X)                                                               \
  X(MPI_Comm, comm_null, MPI_COMM_NULL, ompi_mpi_comm_null)                                 \
  X(MPI_Comm, comm_world, MPI_COMM_WORLD, ompi_mpi_comm_world)                              \
  X(MPI_Group, group_null, MPI_GROUP_NULL, ompi_mpi_group_null)                             \
  X(MPI_Info, info_null, MPI_INFO_NULL, ompi_mpi_info_null)                                 \
  X(MPI_Request, request_null, MPI_REQUEST_NULL, ompi_request_null)                         \
  X(MPI_Errhandler, errors_return, MPI_ERRORS_RETURN, ompi_mpi_errors_return)               \
  X(MPI_Op, op_null, MPI_OP_NULL, ompi_mpi_op_null)                                         \
  X(MPI_Op, sum, MPI_SUM, ompi_mpi_op_sum)                                                  \
  X(MPI_Op, min, MPI_MIN, ompi_mpi_op_min)                                                  \
  X(MPI_Op, max, MPI_MAX, ompi_mpi_op_max)                                                  \
  X(MPI_Op, product, MPI_PROD, ompi_mpi_op_prod)                                            \
  X(MPI_Op, bit_and, MPI_BAND, ompi_mpi_op_band)                                            \
  X(MPI_Op, bit_or, MPI_BOR, ompi_mpi_op_bor)                                               \
  X(MPI_Datatype, datatype_null, MPI_DATATYPE_NULL, ompi_mpi_datatype_null)                 \
  X(MPI_Datatype, byte, MPI_BYTE, ompi_mpi_byte)                                            \
  X(MPI_Datatype, native_int, MPI_INT, ompi_mpi_int)                                        \
  X(MPI_Datatype, int8, MPI_INT8_T, ompi_mpi_int8_t)                                        \
  X(MPI_Datatype, uint8, MPI_UINT8_T, ompi_mpi_uint8_t)                                     \
  X(MPI_Datatype, int16, MPI_INT16_T, ompi_mpi_int16_t)                                     \
  X(MPI_Datatype, uint16, MPI_UINT16_T, ompi_mpi_uint16_t)                                  \
  X(MPI_Datatype, int32, MPI_INT32_T, ompi_mpi_int32_t)                                     \
  X(MPI_Datatype, int64, MPI_INT64_T, ompi_mpi_int64_t)                                     \
  X(MPI_Datatype, float32, MPI_FLOAT, ompi_mpi_float)                                       \
  X(MPI_Datatype, float64, MPI_DOUBLE, ompi_mpi_double)
// clang-format on

// NOLINTNEXTLINE(bugprone-macro-parentheses): a declaration.
#define HORA_FUNCTION(name) decltype(&::name) name;
#define HORA_CONSTANT(type, name, constant, object) type name;
struct Library {
  HORA_MPI_FUNCTIONS(HORA_FUNCTION)
  HORA_MPI_CONSTANTS(HORA_CONSTANT)
};
#undef HORA_FUNCTION
#undef HORA_CONSTANT

// Opens the library that the program has, otherwise the host's; once per process. The module calls
// this when it is loaded, and is not used if it fails. Any thread.
bool open_library(ErrorText& why_not);
// Filled by open_library().
extern const Library& site;

}  // namespace hora::collectives::mpi
