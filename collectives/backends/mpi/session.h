// SPDX-License-Identifier: Apache-2.0
// The MPI library that is opened at run time, and its initialization.
#pragma once

#include <mpi.h>

#include <atomic>
#include <chrono>

#include "collectives/backend.h"
#include "rendezvous/base/time.h"

namespace hora::collectives::mpi {

// The site's MPI library, opened at run time: the module loads on a host without it and can say
// what is missing. The build decides by its mpi.h which kind of MPI that is.

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

// MPI in this process: initialised once, by Hora or by the program, and finalised at exit if Hora
// initialised it. Any thread may call these functions.

// Returns false and says which call failed, and how, unless `code` is MPI_SUCCESS.
bool check(int code, const char* call, ErrorText& error);

// Whether an MPI launcher started this process, or the program has initialised MPI itself. `seen`
// names the evidence, or what this looked for.
bool is_launched(ErrorText& seen);
// How many processes the launcher's variables announce; 0: they do not say.
int launched_size();

// Initialises MPI with the thread support that the runtime needs. The caller may call it any number
// of times.
bool initialise(ErrorText& error);
// Also makes a communicator of all processes for Hora alone: world(). While there is none, all
// processes have to call this until the deadline.
bool start(Deadline deadline, ErrorText& error);
MPI_Comm world();
// "Open MPI v4.1.4"; version() adds the thread support, after start().
const char* library_name();
const char* version();

// Waits until the request is done, `aborted` is set, or the deadline has passed. An abandoned
// request stays with MPI, which may still use its memory at its next call: Hora then never uses MPI
// again (start() fails, and nothing is finalised).
bool wait(MPI_Request& request, const std::atomic<bool>& aborted, Deadline deadline,
          const char* what, ErrorText& error);
bool is_given_up();

// Records whether the job's world over MPI was broken off. Then some ranks may be gone, and
// MPI_Finalize, which would wait for them, is left out at the end.
void set_broken_off(bool broken);

// Sets how many ranks share the host's cores, which decides whether waiting may keep a core busy.
void set_ranks_on_host(int count);

}  // namespace hora::collectives::mpi
