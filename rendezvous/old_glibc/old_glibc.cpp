// SPDX-License-Identifier: Apache-2.0
// Functions that the compiler's own archives (libstdc++, libgcc_eh) and those of the distribution
// call, and glibc 2.28 lacks. Linked into everything that is shipped, hidden, so that the linker
// binds these calls here and the file asks the host for nothing newer than the floor. Each function
// names the release of glibc that brought it. Thread-safe as the originals are.
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

extern "C" {

// 2.32. False: every program of ours may have threads, so shared_ptr always counts atomically.
char __libc_single_threaded = 0;

// 2.36. libstdc++ seeds std::random_device with it.
uint32_t arc4random(void) {
  uint32_t value = 0;
  // Fails only on a kernel without getrandom(2), which is older than any glibc of the floor.
  if (getentropy(&value, sizeof value) != 0) abort();
  return value;
}

// 2.30. std::condition_variable waits by it for steady_clock.
int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const struct timespec* deadline) {
  using Wait = int (*)(pthread_cond_t*, pthread_mutex_t*, clockid_t, const struct timespec*);
  // The host's own, where it has one: it alone is right after a change of the wall clock.
  static const Wait native = reinterpret_cast<Wait>(dlsym(RTLD_NEXT, "pthread_cond_clockwait"));
  if (native != nullptr) return native(condition, mutex, clock, deadline);
  if (clock == CLOCK_REALTIME) return pthread_cond_timedwait(condition, mutex, deadline);
  struct timespec now {
  }, wall{};
  if (clock_gettime(clock, &now) != 0 || clock_gettime(CLOCK_REALTIME, &wall) != 0) return errno;
  constexpr int64_t kSecond = 1'000'000'000;
  int64_t left = (deadline->tv_sec - now.tv_sec) * kSecond + (deadline->tv_nsec - now.tv_nsec);
  if (left < 0) left = 0;
  const int64_t until = wall.tv_nsec + left;
  wall.tv_sec += until / kSecond;
  wall.tv_nsec = until % kSecond;
  return pthread_cond_timedwait(condition, mutex, &wall);
}

// 2.35. The unwinder of libgcc finds the frames of an object by it. The fields are those of glibc's
// <dlfcn.h>.
struct ObjectOfAddress {
  unsigned long long flags;
  void* map_start;
  void* map_end;
  struct link_map* link_map;
  void* eh_frame;
  unsigned long long reserved[7];
};
struct Search {
  uintptr_t address;
  ObjectOfAddress* found;
};

static int look_into(struct dl_phdr_info* object, size_t, void* data) {
  auto* search = static_cast<Search*>(data);
  bool holds_it = false;
  const void* frames = nullptr;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const auto& segment = object->dlpi_phdr[i];
    const uintptr_t start = object->dlpi_addr + segment.p_vaddr;
    if (segment.p_type == PT_LOAD && search->address - start < segment.p_memsz) {
      holds_it = true;
      search->found->map_start = reinterpret_cast<void*>(start);
      search->found->map_end = reinterpret_cast<void*>(start + segment.p_memsz);
    }
    if (segment.p_type == PT_GNU_EH_FRAME) frames = reinterpret_cast<void*>(start);
  }
  if (!holds_it || frames == nullptr) return 0;
  search->found->eh_frame = const_cast<void*>(frames);
  return 1;
}

int _dl_find_object(void* address, ObjectOfAddress* found) {
  *found = {};
  Search search{reinterpret_cast<uintptr_t>(address), found};
  return dl_iterate_phdr(look_into, &search) == 1 ? 0 : -1;
}

// 2.38. Headers of C23 turn strtol() and sscanf() into these; archives of newer distributions call
// them.
long __isoc23_strtol(const char* text, char** end, int base) { return strtol(text, end, base); }
unsigned long __isoc23_strtoul(const char* text, char** end, int base) {
  return strtoul(text, end, base);
}
long long __isoc23_strtoll(const char* text, char** end, int base) {
  return strtoll(text, end, base);
}
unsigned long long __isoc23_strtoull(const char* text, char** end, int base) {
  return strtoull(text, end, base);
}
int __isoc23_sscanf(const char* text, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int count = vsscanf(text, format, arguments);
  va_end(arguments);
  return count;
}

}  // extern "C"
