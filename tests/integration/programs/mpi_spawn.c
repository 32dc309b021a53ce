// SPDX-License-Identifier: Apache-2.0
/* An MPI program that wants to start another one (/bin/true, or the second argument) next to itself. With "return" the error comes back to it, and it says
   which; else MPI ends it. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const int returns = argc > 1 && strcmp(argv[1], "return") == 0;
  if (returns) MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  char program[4096] = "/bin/true";
  if (argc > 2) snprintf(program, sizeof program, "%s", argv[2]);
  MPI_Comm children;
  const int error = MPI_Comm_spawn(program, MPI_ARGV_NULL, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &children, MPI_ERRCODES_IGNORE);
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(error, text, &length);
  printf("%s: %s\n", error == MPI_SUCCESS ? "started" : "refused", text);
  fflush(stdout);
  MPI_Finalize();
  return 0;
}
