// SPDX-License-Identifier: Apache-2.0
/* Prints which of the job's programs this is, as MPI knows it. */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char** argv) {
  int rank, size, given = 0;
  int* number = NULL;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, &number, &given);
  printf("rank %d of %d: program %d %s\n", rank, size, given ? *number : -1, argc > 1 ? argv[1] : "");
  fflush(stdout);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
  return 0;
}
