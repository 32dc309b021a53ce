// SPDX-License-Identifier: Apache-2.0
/* How every peer is timed: as hora-perf does it. C, for the MPI program too. */
#ifndef HORA_BENCHMARK_TIMING_H
#define HORA_BENCHMARK_TIMING_H

#include <stdlib.h>
#include <time.h>

#define WARM_UP 5
#ifndef SECONDS
#define SECONDS 0.3
#endif

static const long kSizes[] = {4,       64,      1024,     16384,    65536,    262144,
                              1048576, 4194304, 16777216, 67108864, 268435456};
#define SIZE_COUNT (sizeof kSizes / sizeof kSizes[0])

static inline double now_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static inline int compare_doubles(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return x < y ? -1 : x > y;
}

static inline double median_of(double* times, int count) {
  qsort(times, (size_t)count, sizeof *times, compare_doubles);
  return times[(count - 1) / 2];
}

/* Of times that median_of has sorted. */
static inline double p99_of(const double* times, int count) {
  return times[(int)((count - 1) * 0.99)];
}

static inline double mean_of(const double* times, int count) {
  double sum = 0;
  for (int i = 0; i < count; ++i) sum += times[i];
  return sum / count;
}

static inline int iterations_for(double each_us) {
  const double count = SECONDS * 1e6 / (each_us > 0.1 ? each_us : 0.1);
  return count < 5 ? 5 : count > 100000 ? 100000 : (int)count;
}

#endif
