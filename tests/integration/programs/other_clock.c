// SPDX-License-Identifier: Apache-2.0
/* LD_PRELOAD: the wall clock of a machine whose time is wrong by HORA_CLOCK_AHEAD seconds. */
#define _GNU_SOURCE  // NOLINT(bugprone-reserved-identifier): the C library reads it.
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec* now) {
  const char* ahead = getenv("HORA_CLOCK_AHEAD");
  const int result = (int)syscall(SYS_clock_gettime, clock, now);
  if (result == 0 && clock == CLOCK_REALTIME && ahead != NULL) now->tv_sec += atol(ahead);
  return result;
}

time_t time(time_t* out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out != NULL) *out = now.tv_sec;
  return now.tv_sec;
}
