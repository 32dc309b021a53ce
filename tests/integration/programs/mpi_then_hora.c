// SPDX-License-Identifier: Apache-2.0
/* A program that starts MPI before the runtime and finalises it at exit, as mpi4py does. The argument is libhora. */
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static void finalize(void) { MPI_Finalize(); }

int main(int argc, char** argv) {
  int provided;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  atexit(finalize);
  void* hora = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
  if (hora == NULL) return fprintf(stderr, "%s\n", dlerror()), 1;
  int (*init)(const void*) = (int (*)(const void*))dlsym(hora, "hora_init");
  int (*shut_down)(void) = (int (*)(void))dlsym(hora, "hora_shutdown");
  int (*size)(void) = (int (*)(void))dlsym(hora, "hora_size");
  const char* (*last_error)(void) = (const char* (*)(void))dlsym(hora, "hora_last_error");
  if (init(NULL) != 0) return fprintf(stderr, "%s\n", last_error()), 2;
  printf("size %d\n", size());
  fflush(stdout);
  return shut_down();
}
