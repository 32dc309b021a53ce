// SPDX-License-Identifier: Apache-2.0
/* A set of tensors, as a program's argument: "64,2048,512" or "1000x1024" are counts of float32. */
#ifndef HORA_BENCHMARK_SET_H
#define HORA_BENCHMARK_SET_H

#include <stdio.h>
#include <stdlib.h>

#define SET_CAPACITY 4096

// NOLINTBEGIN(modernize-use-nullptr,modernize-use-using): it is C, too.

typedef struct {
  int count;
  int elements[SET_CAPACITY];
  float* data[SET_CAPACITY];
} tensor_set;

/* Ends the program when the text is not a set, or memory is short. */
static inline tensor_set* make_set(const char* text) {
  tensor_set* set = (tensor_set*)calloc(1, sizeof *set);
  while (set != NULL && *text != '\0') {
    char* end = NULL;
    long times = 1;
    long elements = strtol(text, &end, 10);
    if (end != text && *end == 'x') {
      times = elements;
      text = end + 1;
      elements = strtol(text, &end, 10);
    }
    if (end == text || (*end != '\0' && *end != ',') || elements < 1 || times < 1 ||
        times > SET_CAPACITY - set->count) {
      fprintf(stderr, "no set of tensors: %s\n", text);
      exit(2);
    }
    for (; times > 0; --times) {
      set->elements[set->count] = (int)elements;
      set->data[set->count] = (float*)calloc((size_t)elements, sizeof(float));
      if (set->data[set->count++] == NULL) exit(3);
    }
    text = *end == ',' ? end + 1 : end;
  }
  if (set == NULL || set->count == 0) exit(2);
  return set;
}
// NOLINTEND(modernize-use-nullptr,modernize-use-using)

#endif
