// SPDX-License-Identifier: Apache-2.0
/* An MPI program that knows nothing of Hora. Arguments: "exit" or "abort" makes rank 1 fail with code 7, "wait" makes
   all stay until they are ended. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char** argv) {
  const char* way = argc > 1 ? argv[1] : "";
  int rank, size, total = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  int mine = rank + 1;
  MPI_Allreduce(&mine, &total, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Comm here;
  int local = 0;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &here);
  MPI_Comm_size(here, &local);
  printf("rank %d of %d, %d here: sum %d\n", rank, size, local, total);
  fflush(stdout);
  if (rank == 1 && strcmp(way, "exit") == 0) _exit(7);
  if (rank == 1 && strcmp(way, "abort") == 0) MPI_Abort(MPI_COMM_WORLD, 7);
  if (strcmp(way, "wait") == 0) pause();
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
  return 0;
}
