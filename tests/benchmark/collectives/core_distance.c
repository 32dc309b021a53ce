// SPDX-License-Identifier: Apache-2.0
/* How long a cache line takes from one core to another one and back: the median in nanoseconds, for the first two
 * cores of this process. In a virtual machine it changes: its cores may share a cache, and some seconds later not. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>

#include "timing.h"

#define TURNS 2000
#define SERIES 9

static _Alignas(128) atomic_int turn;
static int cores[2];
static pthread_barrier_t in_place; /* A thread that spins at a real-time priority lets no other one leave its core. */

static void stay_on(int core) {
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(core, &only);
  if (sched_setaffinity(0, sizeof only, &only) != 0) exit(4);
}

static void* answer(void* nothing) {
  stay_on(cores[1]);
  pthread_barrier_wait(&in_place);
  for (int i = 0; i < TURNS * SERIES; ++i) {
    while (atomic_load(&turn) == 0) continue;
    atomic_store(&turn, 0);
  }
  return nothing;
}

int main(void) {
  cpu_set_t allowed;
  int found = 0;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return 4;
  for (int core = 0; core < CPU_SETSIZE && found < 2; ++core) {
    if (CPU_ISSET(core, &allowed)) cores[found++] = core;
  }
  if (found < 2) return 5;
  stay_on(cores[0]);
  pthread_t other;
  if (pthread_barrier_init(&in_place, NULL, 2) != 0 || pthread_create(&other, NULL, answer, NULL) != 0) return 3;
  pthread_barrier_wait(&in_place);
  double times[SERIES];
  for (int series = 0; series < SERIES; ++series) {
    const double start = now_us();
    for (int i = 0; i < TURNS; ++i) {
      atomic_store(&turn, 1);
      while (atomic_load(&turn) != 0) continue;
    }
    times[series] = (now_us() - start) * 1e3 / TURNS;
  }
  pthread_join(other, NULL);
  printf("%.0f\n", median_of(times, SERIES));
  return 0;
}
