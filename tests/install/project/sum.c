// SPDX-License-Identifier: Apache-2.0
/* Every rank gives its rank + 1 and an array of doubles; all print the sums. C99. */
#include <hora/hora.h>
#include <stdio.h>

static int fail(const char* what, const char* why) {
  fprintf(stderr, "%s: %s\n", what, why);
  return 1;
}

int main(void) {
  if (hora_init(NULL) != HORA_OK) return fail("hora_init", hora_last_error());

  double values[1000];
  for (int i = 0; i < 1000; ++i) values[i] = (hora_rank() + 1) * (i + 1);
  const int64_t shape[] = {1000};

  hora_request request = {0};
  request.struct_size = sizeof(request);
  request.operation = HORA_ALLREDUCE;
  request.name = "values";
  request.input.data = values;
  request.input.shape = shape;
  request.input.ndim = 1;
  request.input.dtype = HORA_FLOAT64;
  request.input.device = HORA_CPU_DEVICE;
  request.output = request.input; /* in place */
  request.reduce_op = HORA_SUM;
  request.prescale = request.postscale = 1.0;

  hora_handle handle = 0;
  if (hora_submit(&request, 1, &handle) != HORA_OK) return fail("hora_submit", hora_last_error());
  if (hora_wait(handle, 60000) != HORA_OK) return fail("hora_wait", hora_error(handle));
  hora_release(handle);

  const double ranks = hora_size() * (hora_size() + 1) / 2.0;
  for (int i = 0; i < 1000; ++i) {
    if (values[i] != ranks * (i + 1)) return fail("allreduce", "wrong sum");
  }
  printf("c %d of %d: %g\n", hora_rank(), hora_size(), values[0]);
  return hora_shutdown() == HORA_OK ? 0 : fail("hora_shutdown", hora_last_error());
}
