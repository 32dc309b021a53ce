// SPDX-License-Identifier: Apache-2.0
/* A collective of MPI on float32: "bytes median p99 mean" for each size, in microseconds, of the
 * slowest rank.  collective_mpi OPERATION SIZES [in-place | persistent]
 * Sizes are those of hora-perf; persistent: by a request that is made once (allreduce).
 */
#include <mpi.h>
#ifdef OPEN_MPI
#include <mpi-ext.h>
#endif
#include <stdio.h>
#include <string.h>

#include "timing.h"

static const char* operation;
static int in_place;
static int persistent;
static int ranks;
static MPI_Request request;

static int is(const char* name) { return strcmp(operation, name) == 0; }

static void prepare(const float* in, float* out, int count) {
#ifdef OMPI_HAVE_MPI_EXT_PCOLLREQ
  MPIX_Allreduce_init(in, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
#else
  fprintf(stderr, "this MPI has no persistent collectives\n");
  exit(1);
#endif
}

static void allreduce(float* in, float* out, int count) {
  MPI_Allreduce(in_place ? MPI_IN_PLACE : in, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}
static void start_and_wait(float* in, float* out, int count) {
  MPI_Start(&request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
}
static void broadcast(float* in, float* out, int count) {
  MPI_Bcast(in, count, MPI_FLOAT, 0, MPI_COMM_WORLD);
}
static void allgather(float* in, float* out, int count) {
  const int part = count / ranks;
  MPI_Allgather(in, part, MPI_FLOAT, out, part, MPI_FLOAT, MPI_COMM_WORLD);
}
static void alltoall(float* in, float* out, int count) {
  const int part = count / ranks;
  MPI_Alltoall(in, part, MPI_FLOAT, out, part, MPI_FLOAT, MPI_COMM_WORLD);
}
static void reducescatter(float* in, float* out, int count) {
  MPI_Reduce_scatter_block(in, out, count / ranks, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}
static void barrier(float* in, float* out, int count) { MPI_Barrier(MPI_COMM_WORLD); }

static void (*call)(float* in, float* out, int count);

static double timed(float* in, float* out, int count) {
  const double start = now_us();
  call(in, out, count);
  return now_us() - start;
}

int main(int argc, char** argv) {
  int rank = 0;
  if (argc < 3) return 2;
  operation = argv[1];
  in_place = argc > 3 && strcmp(argv[3], "in-place") == 0;
  persistent = argc > 3 && strcmp(argv[3], "persistent") == 0;
  call = persistent            ? start_and_wait
         : is("allreduce")     ? allreduce
         : is("broadcast")     ? broadcast
         : is("allgather")     ? allgather
         : is("alltoall")      ? alltoall
         : is("reducescatter") ? reducescatter
         : is("barrier")       ? barrier
                               : NULL;
  if (call == NULL) return 2;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  for (const char* text = argv[2]; text != NULL; text = strchr(text, ','), text += text != NULL) {
    const int count = (int)(atol(text) / 4);
    float* out = aligned_alloc(64, ((size_t)count * 4 + 64) / 64 * 64);
    float* in = in_place ? out : aligned_alloc(64, ((size_t)count * 4 + 64) / 64 * 64);
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
    if (rank == 0) {
      printf("%ld %.3f %.3f %.3f\n", (long)count * 4, found[0], found[1], found[2]);
    }
    if (persistent) MPI_Request_free(&request);
    free(times);
    if (!in_place) free(in);
    free(out);
  }
  MPI_Finalize();
  return 0;
}
