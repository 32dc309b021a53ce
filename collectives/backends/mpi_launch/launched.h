// SPDX-License-Identifier: Apache-2.0
// Whether this process belongs to an MPI job, without the use of MPI: its library stays unloaded in
// jobs that do not need it, since a site's installation may be slow to load, or crash.
#pragma once

#include "collectives/backend.h"

namespace hora::collectives::mpi {

// The variable in which an MPI launcher has given the process its rank; null: none is set.
const char* launcher_variable() noexcept;
// True when the program itself has loaded an MPI library.
bool library_in_process() noexcept;

inline constexpr const char* kNotLaunched =
    "no MPI launcher started this process (mpirun, srun, horarun --mpi or --pmix would set "
    "OMPI_COMM_WORLD_SIZE, PMIX_NAMESPACE or PMI_SIZE)";

// One of the two; false: `why_not` says so.
bool is_called_for(ErrorText& why_not) noexcept;

}  // namespace hora::collectives::mpi
