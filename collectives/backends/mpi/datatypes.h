// SPDX-License-Identifier: Apache-2.0
// Maps Hora's dtypes and reductions to MPI's. MPI has no 16-bit floats, so Hora brings their
// reductions.
#pragma once

#include "collectives/backend.h"
#include "collectives/backends/mpi/library.h"

namespace hora::collectives::mpi {

// Creates what MPI lacks, once; call it after initialise(), from one thread at a time.
bool make_datatypes(ErrorText& error);
MPI_Datatype datatype_of(hora_dtype dtype);
// Returns MPI_OP_NULL where MPI does not support this reduction (ADASUM).
MPI_Op operator_of(hora_dtype dtype, hora_reduce_op op);

}  // namespace hora::collectives::mpi
