// SPDX-License-Identifier: Apache-2.0
#include "collectives/backends/mpi_launch/launched.h"

#include <link.h>

#include <cstdlib>
#include <cstring>
#include <initializer_list>

namespace hora::collectives::mpi {

const char* launcher_variable() noexcept {
  // Open MPI's mpirun, PMIx (srun, prte), PMI-1 and PMI-2 launchers, MPICH's hydra.
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMIX_NAMESPACE", "PMI_SIZE", "PMI_FD"}) {
    if (std::getenv(name) != nullptr) return name;
  }
  return nullptr;
}

bool library_in_process() noexcept {
  // Looks through the loaded libraries by name, which works without the headers or symbols of MPI.
  return ::dl_iterate_phdr(
             [](dl_phdr_info* info, std::size_t, void*) {
               // Any version: "/libmpi.so.40", "/libmpi.so.12".
               const char* const name = std::strrchr(info->dlpi_name, '/');
               return name != nullptr && std::strncmp(name, "/libmpi.so", 10) == 0 ? 1 : 0;
             },
             nullptr) != 0;
}

bool is_called_for(ErrorText& why_not) noexcept {
  return launcher_variable() != nullptr || library_in_process() || why_not.set("%s", kNotLaunched);
}

}  // namespace hora::collectives::mpi
