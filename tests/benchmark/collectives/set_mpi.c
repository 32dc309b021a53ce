// SPDX-License-Identifier: Apache-2.0
/* A set of tensors by MPI_Allreduce, one after another and in flight together, whichever is
 * quicker: the median in microseconds of the slowest rank.  set_mpi SET STEPS [persistent]
 * persistent: by requests that are made once. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mpi-ext.h>

#include "set.h"
#include "timing.h"

static MPI_Request requests[SET_CAPACITY];

static void in_turn(const tensor_set* set) {
  for (int i = 0; i < set->count; ++i) {
    MPI_Allreduce(MPI_IN_PLACE, set->data[i], set->elements[i], MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  }
}

static void together(const tensor_set* set) {
  for (int i = 0; i < set->count; ++i) {
    MPI_Iallreduce(MPI_IN_PLACE, set->data[i], set->elements[i], MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD,
                   &requests[i]);
  }
  MPI_Waitall(set->count, requests, MPI_STATUSES_IGNORE);
}

#ifdef OMPI_HAVE_MPI_EXT_PCOLLREQ
static void prepare(const tensor_set* set) {
  for (int i = 0; i < set->count; ++i) {
    MPIX_Allreduce_init(MPI_IN_PLACE, set->data[i], set->elements[i], MPI_FLOAT, MPI_SUM,
                        MPI_COMM_WORLD, MPI_INFO_NULL, &requests[i]);
  }
}

static void persistent(const tensor_set* set) {
  MPI_Startall(set->count, requests);
  MPI_Waitall(set->count, requests, MPI_STATUSES_IGNORE);
}
#else
static void prepare(const tensor_set* set) {
  (void)set;
  fprintf(stderr, "this MPI has no persistent collectives\n");
  exit(1);
}
#define persistent together
#endif

static double median_time(void (*way)(const tensor_set*), const tensor_set* set, int steps) {
  double* times = calloc((size_t)steps, sizeof *times);
  for (int i = 0; i < WARM_UP; ++i) way(set);
  for (int i = 0; i < steps; ++i) {
    const double start = now_us();
    way(set);
    times[i] = now_us() - start;
  }
  double median = median_of(times, steps);
  free(times);
  MPI_Allreduce(MPI_IN_PLACE, &median, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return median;
}

int main(int argc, char** argv) {
  int rank = 0;
  const int prepared = argc == 4 && strcmp(argv[3], "persistent") == 0;
  if (argc != 3 && !prepared) return 2;
  const tensor_set* set = make_set(argv[1]);
  const int steps = atoi(argv[2]);
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (prepared) {
    prepare(set);
    const double median = median_time(persistent, set, steps);
    if (rank == 0) printf("%.3f\n", median);
    MPI_Finalize();
    return 0;
  }
  const double one = median_time(in_turn, set, steps);
  const double other = median_time(together, set, steps);
  if (rank == 0) printf("%.3f\n", one < other ? one : other);
  MPI_Finalize();
  return 0;
}
