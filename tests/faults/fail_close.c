// SPDX-License-Identifier: Apache-2.0
/* LD_PRELOAD: a file system that takes all that is written and refuses it later, as those over a
   network do.
     HORA_REFUSE=WORD            files whose path holds the word
     HORA_REFUSE_AT=close        when: close (each time, also of a duplicate) or fsync
     HORA_REFUSE_WITH=122        with which errno */
#define _GNU_SOURCE  // NOLINT(bugprone-reserved-identifier): the C library reads it.
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int refused(int fd, const char* call) {
  const char* word = getenv("HORA_REFUSE");
  const char* at = getenv("HORA_REFUSE_AT");
  if (word == NULL || at == NULL || strcmp(at, call) != 0) return 0;
  char link[64], path[PATH_MAX];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t length = readlink(link, path, sizeof path - 1);
  if (length < 0) return 0;
  path[length] = '\0';
  return strstr(path, word) != NULL;
}

static int refuse(void) {
  const char* error = getenv("HORA_REFUSE_WITH");
  errno = error == NULL ? ENOSPC : atoi(error);
  return -1;
}

int close(int fd) {
  static int (*next)(int);
  if (next == NULL) *(void**)&next = dlsym(RTLD_NEXT, "close");
  const int saved = errno;
  const int says_no = refused(fd, "close");
  errno = saved;
  const int closed = next(fd);
  return says_no && closed == 0 ? refuse() : closed;
}

int fsync(int fd) {
  static int (*next)(int);
  if (next == NULL) *(void**)&next = dlsym(RTLD_NEXT, "fsync");
  return refused(fd, "fsync") ? refuse() : next(fd);
}
