// SPDX-License-Identifier: Apache-2.0
/* MPI_Allreduce of float32 sums: "bytes median p99 mean" for each size, in microseconds, of the
 * slowest rank.  allreduce_mpi MOST [persistent]: sizes up to MOST bytes; by a request that is made
 * once.
 */
#include <mpi.h>
#include <stdio.h>

#include <mpi-ext.h>

#include "timing.h"

static int persistent;
static MPI_Request request;

static void prepare(const float* in, float* out, int count) {
#ifdef OMPI_HAVE_MPI_EXT_PCOLLREQ
  MPIX_Allreduce_init(in, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
#else
  fprintf(stderr, "this MPI has no persistent collectives\n");
  exit(1);
#endif
}

static double timed(const float* in, float* out, int count) {
  const double start = now_us();
  if (persistent) {
    MPI_Start(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  } else {
    MPI_Allreduce(in, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  }
  return now_us() - start;
}

int main(int argc, char** argv) {
  int rank = 0;
  if (argc < 2) return 2;
  const long most = atol(argv[1]);
  persistent = argc > 2;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (size_t s = 0; s < SIZE_COUNT && kSizes[s] <= most; ++s) {
    const int count = (int)(kSizes[s] / 4);
    float* in = calloc((size_t)count, 4);
    float* out = calloc((size_t)count, 4);
    for (int i = 0; i < count; ++i) in[i] = out[i] = 1;
    double each = 0;
    if (persistent) prepare(in, out, count);
    for (int i = 0; i < WARM_UP; ++i) timed(in, out, count);
    for (int i = 0; i < 3; ++i) each += timed(in, out, count) / 3;
    MPI_Allreduce(MPI_IN_PLACE, &each, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    const int iterations = iterations_for(each);
    double* times = calloc((size_t)iterations, sizeof *times);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < iterations; ++i) times[i] = timed(in, out, count);
    const double median = median_of(times, iterations);
    double found[] = {median, p99_of(times, iterations), mean_of(times, iterations)};
    MPI_Allreduce(MPI_IN_PLACE, found, 3, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    if (rank == 0) printf("%ld %.3f %.3f %.3f\n", kSizes[s], found[0], found[1], found[2]);
    if (persistent) MPI_Request_free(&request);
    free(times);
    free(in);
    free(out);
  }
  MPI_Finalize();
  return 0;
}
