// SPDX-License-Identifier: Apache-2.0
// Copies many small tensors into one buffer and back, and scales them on the way, in one launch.
//
// The arithmetic is that of kernels/kernels.h: integers truncate toward zero and saturate, float32,
// float16 and bfloat16 are scaled in float32, the others in double.
#include <climits>
#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "collectives/backends/nccl/pack_kernels.h"

namespace {

using hora::collectives::nccl::CopyTable;

template <typename T>
struct Limits {
  static constexpr bool kSigned = static_cast<T>(-1) < T{0};
  static constexpr T kMost =
      kSigned ? static_cast<T>((UINT64_C(1) << (sizeof(T) * 8 - 1)) - 1) : static_cast<T>(-1);
  static constexpr T kLeast = kSigned ? static_cast<T>(-kMost - 1) : T{0};
};

template <typename T>
__device__ T scaled(T value, double factor, std::int64_t divisor) {
  if (divisor != 1) {
    const bool fits = static_cast<std::int64_t>(static_cast<T>(divisor)) == divisor &&
                      static_cast<T>(divisor) > T{0};
    return fits ? static_cast<T>(value / static_cast<T>(divisor)) : T{0};
  }
  if (factor == 1.0) return value;
  const double wide = static_cast<double>(value) * factor;
  if (wide >= static_cast<double>(Limits<T>::kMost)) return Limits<T>::kMost;
  if (wide <= static_cast<double>(Limits<T>::kLeast)) return Limits<T>::kLeast;
  return wide == wide ? static_cast<T>(wide) : T{0};
}

template <>
__device__ float scaled(float value, double factor, std::int64_t) {
  return factor == 1.0 ? value : value * static_cast<float>(factor);
}
template <>
__device__ double scaled(double value, double factor, std::int64_t) {
  return value * factor;
}
template <>
__device__ __half scaled(__half value, double factor, std::int64_t) {
  return factor == 1.0 ? value : __float2half(__half2float(value) * static_cast<float>(factor));
}
template <>
__device__ __nv_bfloat16 scaled(__nv_bfloat16 value, double factor, std::int64_t) {
  return factor == 1.0 ? value
                       : __float2bfloat16(__bfloat162float(value) * static_cast<float>(factor));
}

// Sixteen bytes at a time where both ends allow it; the tensors of a fused step mostly do.
template <typename T>
__device__ void copy(const CopyTable& table, double factor, std::int64_t divisor) {
  const T* const from = static_cast<const T*>(table.from[blockIdx.y]);
  T* const to = static_cast<T*>(table.to[blockIdx.y]);
  const std::int64_t count = table.count[blockIdx.y];
  const std::int64_t start = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  constexpr int kLanes = 16 / sizeof(T);
  std::int64_t done = 0;
  const auto places = reinterpret_cast<std::uintptr_t>(from) | reinterpret_cast<std::uintptr_t>(to);
  if (places % 16 == 0) {
    const std::int64_t vectors = count / kLanes;
    for (std::int64_t i = start; i < vectors; i += stride) {
      union {
        uint4 whole;
        T parts[kLanes];
      } vector;
      vector.whole = reinterpret_cast<const uint4*>(from)[i];
      for (int lane = 0; lane < kLanes; ++lane) {
        vector.parts[lane] = scaled(vector.parts[lane], factor, divisor);
      }
      reinterpret_cast<uint4*>(to)[i] = vector.whole;
    }
    done = vectors * kLanes;
  }
  for (std::int64_t i = done + start; i < count; i += stride) {
    to[i] = scaled(from[i], factor, divisor);
  }
}

}  // namespace

// The table is only read, and in place: PTX as old as ours has no __grid_constant__ to demand that,
// so the assembler does, which refuses a kernel that copies it (CMakeLists.txt).
#define HORA_COPY_KERNEL(suffix, type)                                                \
  extern "C" __global__ void hora_copy_##suffix(const CopyTable table, double factor, \
                                                std::int64_t divisor) {               \
    copy<type>(table, factor, divisor);                                               \
  }

HORA_COPY_KERNEL(u8, std::uint8_t)
HORA_COPY_KERNEL(i8, std::int8_t)
HORA_COPY_KERNEL(u16, std::uint16_t)
HORA_COPY_KERNEL(i16, std::int16_t)
HORA_COPY_KERNEL(i32, std::int32_t)
HORA_COPY_KERNEL(i64, std::int64_t)
HORA_COPY_KERNEL(f16, __half)
HORA_COPY_KERNEL(f32, float)
HORA_COPY_KERNEL(f64, double)
HORA_COPY_KERNEL(bf16, __nv_bfloat16)
