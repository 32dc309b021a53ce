// SPDX-License-Identifier: Apache-2.0
// What programs of Debian 11 call that glibc 2.28 lacks; see make.
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

pid_t gettid(void) { return (pid_t)syscall(SYS_gettid); }

int pthread_cond_clockwait(pthread_cond_t *cond, pthread_mutex_t *mutex, clockid_t clock,
                           const struct timespec *until) {
  struct timespec now, real;
  clock_gettime(clock, &now);
  clock_gettime(CLOCK_REALTIME, &real);
  real.tv_sec += until->tv_sec - now.tv_sec;
  real.tv_nsec += until->tv_nsec - now.tv_nsec;
  if (real.tv_nsec < 0) real.tv_sec -= 1, real.tv_nsec += 1000000000;
  if (real.tv_nsec >= 1000000000) real.tv_sec += 1, real.tv_nsec -= 1000000000;
  return pthread_cond_timedwait(cond, mutex, &real);
}
