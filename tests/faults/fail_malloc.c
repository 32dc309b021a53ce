// SPDX-License-Identifier: Apache-2.0
/* LD_PRELOAD: lets one allocation of a program fail, or all from one on.
     HORA_FAIL_PROGRAM=horarun   the file's name; every other program is left alone
     HORA_FAIL_ALLOCATION=17     the 17th; 0: none
     HORA_FAIL_ALL=1             and all that follow
     HORA_FAIL_LOG=FILE          gets the number of allocations, at the program's end */
#define _GNU_SOURCE  // NOLINT(bugprone-reserved-identifier): the C library reads it.
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming): glibc's own names.
extern void* __libc_malloc(size_t size);
extern void* __libc_calloc(size_t count, size_t size);
extern void* __libc_realloc(void* old, size_t size);
extern void* __libc_memalign(size_t alignment, size_t size);
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)

static atomic_long allocations;
static long fails_at = -1; /* -1: this program is left alone */
static int fails_on;
static const char* log_path;

static int refused(void) {
  if (fails_at < 0) return 0;
  const long number = atomic_fetch_add(&allocations, 1) + 1;
  if (fails_at == 0 || (fails_on ? number < fails_at : number != fails_at)) return 0;
  errno = ENOMEM;
  return 1;
}

void* malloc(size_t size) { return refused() ? NULL : __libc_malloc(size); }
void* calloc(size_t count, size_t size) { return refused() ? NULL : __libc_calloc(count, size); }
void* realloc(void* old, size_t size) { return refused() ? NULL : __libc_realloc(old, size); }
void* aligned_alloc(size_t alignment, size_t size) {
  return refused() ? NULL : __libc_memalign(alignment, size);
}
void* memalign(size_t alignment, size_t size) {
  return refused() ? NULL : __libc_memalign(alignment, size);
}
int posix_memalign(void** place, size_t alignment, size_t size) {
  void* const block = refused() ? NULL : __libc_memalign(alignment, size);
  if (block == NULL) return ENOMEM;
  *place = block;
  return 0;
}

__attribute__((constructor)) static void begin(void) {
  const char* program = getenv("HORA_FAIL_PROGRAM");
  const char* at = getenv("HORA_FAIL_ALLOCATION");
  if (program == NULL || at == NULL || strcmp(program_invocation_short_name, program) != 0) return;
  fails_on = getenv("HORA_FAIL_ALL") != NULL;
  log_path = getenv("HORA_FAIL_LOG");
  fails_at = atol(at);
}

__attribute__((destructor)) static void end(void) {
  if (fails_at < 0 || log_path == NULL) return;
  char text[32];
  const int size = snprintf(text, sizeof text, "%ld\n", atomic_load(&allocations));
  const int fd = open(log_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return;
  if (write(fd, text, (size_t)size) != size) perror(log_path);
  close(fd);
}
