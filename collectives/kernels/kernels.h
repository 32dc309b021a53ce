// SPDX-License-Identifier: Apache-2.0
// Element-wise arithmetic on host memory, with the widest vector unit that pays off on this
// processor. All functions are thread-safe.
//
// The build compiles the same source once per instruction set (kernels_impl.inc); the first use
// chooses a table. All tables give bit-equal results, on all architectures; only of several NaNs an
// architecture may pass on another one.  [pure]
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "collectives/types.h"

namespace hora::collectives {

// out[i] = a[i] op b[i]. out may be a or b; no other overlap. Any alignment.
using ReduceFunction = void (*)(void* out, const void* a, const void* b, std::int64_t count);
// out[i] = in[i] * factor, integers truncated toward zero. Floats of 16 and 32 bits are multiplied
// in float32 by the factor as a float32, everything else in double. out may be in.
using ScaleFunction = void (*)(void* out, const void* in, std::int64_t count, double factor);
// data[i] = data[i] / divisor, integers truncated toward zero.
using DivideFunction = void (*)(void* data, std::int64_t count, std::int64_t divisor);

// Sums of 16-bit floats, in float32: sum[i] (+)= in[i] * factor, and out[i] = sum[i] * factor,
// rounded once. `first` starts a sum. all_finite() looks for infinities and NaNs in 16-bit floats.
struct WideSum {
  void (*add)(float* sum, const void* in, std::int64_t count, float factor, bool first);
  void (*round)(void* out, const float* sum, std::int64_t count, float factor);
  bool (*all_finite)(const void* data, std::int64_t count);
};

struct KernelTable {
  const char* instruction_set;
  ReduceFunction reduce[4][kDtypeCount];  // sum, min, max, product
  ScaleFunction scale[kDtypeCount];       // bool: null
  DivideFunction divide[kDtypeCount];     // of integers; others: null
  WideSum half;
  WideSum bfloat;

  // Null for all types but the two.
  const WideSum* wide_sum(hora_dtype dtype) const {
    return dtype == HORA_FLOAT16 ? &half : dtype == HORA_BFLOAT16 ? &bfloat : nullptr;
  }
};

// The table in use: the best one for this processor, or the one that HORA_SIMD names (baseline;
// x86-64: avx2, avx512; ARM64: fp16, bf16), if the processor supports it.
const KernelTable& kernels();
// Every table that this processor can run, for tests. Ends with null.
const KernelTable* const* usable_kernels();

// AVERAGE reduces as SUM; ADASUM has no element-wise kernel (null).
ReduceFunction reduce_function(hora_dtype dtype, hora_reduce_op op);

// Fills with the element that changes nothing: 0 for sum, 1 for product, the largest value for min,
// ...
void fill_identity(void* data, std::int64_t count, hora_dtype dtype, hora_reduce_op op);

// Scales in place by `factor` and, for an average, divides by `divisor` (> 0; 1 = none). Integers:
// with factor 1 the division is exact.
void apply_scale(void* data, std::int64_t count, hora_dtype dtype, double factor,
                 std::int64_t divisor);

// The average of 16-bit floats as reduce_ranks() computes it: divided and added in float32, so that
// no sum overflows, and rounded once.
template <typename Source>
void average_ranks(void* out, const Source& source, int ranks, std::int64_t count,
                   const WideSum& wide, double factor, std::int64_t divisor) {
  constexpr std::int64_t kBlock = 1024;
  float sum[kBlock];
  const auto share = static_cast<float>(1.0 / static_cast<double>(divisor));
  for (std::int64_t done = 0; done < count; done += kBlock) {
    const std::int64_t now = count - done < kBlock ? count - done : kBlock;
    for (int rank = 0; rank < ranks; ++rank) {
      const void* const its = source(rank);
      wide.add(sum, static_cast<const char*>(its) + done * 2, now, share, rank == 0);
    }
    wide.round(static_cast<char*>(out) + done * 2, sum, now, static_cast<float>(factor));
  }
}

// out = source(0) op source(1) op ... over all ranks in this order, then scaled as by
// apply_scale(). `source(rank)` returns the address of that rank's elements; `out` may be
// source(0) or source(1).
template <typename Source>
void reduce_ranks(void* out, const Source& source, int ranks, std::int64_t count, hora_dtype dtype,
                  hora_reduce_op op, double factor, std::int64_t divisor) {
  const WideSum* const wide = divisor == 1 ? nullptr : kernels().wide_sum(dtype);
  if (wide != nullptr) return average_ranks(out, source, ranks, count, *wide, factor, divisor);
  if (ranks == 1) {
    const void* const only = source(0);
    if (only != out && count > 0)
      std::memcpy(out, only, static_cast<std::size_t>(count) * dtype_bytes(dtype));
  } else {
    const ReduceFunction function = reduce_function(dtype, op);
    function(out, source(0), source(1), count);
    for (int rank = 2; rank < ranks; ++rank) function(out, out, source(rank), count);
  }
  apply_scale(out, count, dtype, factor, divisor);
}

}  // namespace hora::collectives
