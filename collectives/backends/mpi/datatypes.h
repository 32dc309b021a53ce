// Our dtypes and reductions as MPI's. MPI knows no 16-bit floats: their sums are ours.
#pragma once

#include <mpi.h>

#include "collectives/backends/backend.h"

namespace hora::collectives::mpi {

// After initialise(). Makes what MPI does not have, once.
bool make_datatypes(ErrorText& error);
MPI_Datatype datatype_of(hora_dtype dtype);
// MPI_OP_NULL: there is no such reduction (ADASUM).
MPI_Op operator_of(hora_dtype dtype, hora_reduce_op op);

}  // namespace hora::collectives::mpi
