// SPDX-License-Identifier: Apache-2.0
/* A set of tensors by MPI_Allreduce, one after another and in flight together, whichever is
 * quicker: the median in microseconds of the slowest rank.  set_mpi SET STEPS */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

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
  if (argc != 3) return 2;
  const tensor_set* set = make_set(argv[1]);
  const int steps = atoi(argv[2]);
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const double one = median_time(in_turn, set, steps);
  const double other = median_time(together, set, steps);
  if (rank == 0) printf("%.3f\n", one < other ? one : other);
  MPI_Finalize();
  return 0;
}
