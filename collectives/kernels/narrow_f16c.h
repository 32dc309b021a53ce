// SPDX-License-Identifier: Apache-2.0
// Eight binary16 elements at a time with F16C, for kernels_impl.inc. Internal linkage, as in
// half.h.
#pragma once

#include <immintrin.h>

#define HORA_EIGHT_HALVES 1

namespace hora::collectives {

static inline __m256 load_eight_halves(const char* from) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}

static inline void store_eight_halves(char* to, __m256 values) {
  const __m128i packed = _mm256_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), packed);
}

template <typename Op>
static inline void reduce_eight_halves(char* out, const char* a, const char* b) {
  alignas(32) float x[8];
  alignas(32) float y[8];
  _mm256_store_ps(x, load_eight_halves(a));
  _mm256_store_ps(y, load_eight_halves(b));
  for (int i = 0; i < 8; ++i) x[i] = Op::apply(x[i], y[i]);
  store_eight_halves(out, _mm256_load_ps(x));
}

static inline void scale_eight_halves(char* out, const char* in, float factor) {
  store_eight_halves(out, _mm256_mul_ps(load_eight_halves(in), _mm256_set1_ps(factor)));
}

static inline void add_eight_halves(float* sum, const char* in, float factor, bool first) {
  const __m256 terms = _mm256_mul_ps(load_eight_halves(in), _mm256_set1_ps(factor));
  _mm256_storeu_ps(sum, first ? terms : _mm256_add_ps(_mm256_loadu_ps(sum), terms));
}

static inline void round_eight_halves(char* out, const float* sum, float factor) {
  store_eight_halves(out, _mm256_mul_ps(_mm256_loadu_ps(sum), _mm256_set1_ps(factor)));
}

}  // namespace hora::collectives
