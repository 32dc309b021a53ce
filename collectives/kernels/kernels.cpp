// SPDX-License-Identifier: Apache-2.0
// Chooses the table of kernels at run time. This file itself is compiled for the baseline, so it
// runs on every processor.
#include "collectives/kernels/kernels.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

#include <cstring>
#include <limits>

#include "collectives/kernels/simd_setting.h"

namespace hora::collectives {

extern const KernelTable kBaselineKernels;
#if defined(__x86_64__)
extern const KernelTable kAvx2Kernels;
extern const KernelTable kAvx512Kernels;
#elif defined(__aarch64__)
extern const KernelTable kFp16Kernels;
extern const KernelTable kBf16Kernels;
#endif

namespace {

// The null after the last table ends the list for usable_kernels().
struct Usable {
  const KernelTable* tables[4] = {};
  const KernelTable* best = nullptr;
};

#if defined(__x86_64__)
// Not __builtin_cpu_supports("f16c"), which clang 14 does not know.
bool has_f16c() {
  unsigned int eax = 0, ebx = 0, ecx = 0, edx = 0;
  return ::__get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
#endif

Usable find_usable() {
  Usable usable;
  int count = 0;
  usable.tables[count++] = &kBaselineKernels;
#if defined(__x86_64__)
  // Necessary before main(), when a constructor may be the first caller.
  __builtin_cpu_init();
  // F16C is separate from AVX2, and the kernels for half precision need it.
  const bool avx2 = __builtin_cpu_supports("avx2") && has_f16c();
  if (avx2) usable.tables[count++] = &kAvx2Kernels;
  if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")) {
    usable.tables[count++] = &kAvx512Kernels;
  }
  // Memory, not arithmetic, is the limit: AVX-512 is no faster than AVX2 here and can lower the
  // clock, so it runs on request only.
  usable.best = usable.tables[count > 1 ? 1 : 0];
#elif defined(__aarch64__)
  // Bits of the kernel's interface, of which older C libraries do not name all.
  constexpr unsigned long kHasFp16 = 1UL << 10;  // HWCAP_ASIMDHP
  constexpr unsigned long kHasBf16 = 1UL << 14;  // HWCAP2_BF16
  const bool fp16 = (::getauxval(AT_HWCAP) & kHasFp16) != 0;
  if (fp16) usable.tables[count++] = &kFp16Kernels;
  if (fp16 && (::getauxval(AT_HWCAP2) & kHasBf16) != 0) usable.tables[count++] = &kBf16Kernels;
  // Each has the same instructions as the one before and shorter ways for narrow floats.
  usable.best = usable.tables[count - 1];
#else
  usable.best = usable.tables[0];
#endif
  const char* wanted = simd_setting();
  // A name that this processor cannot run changes nothing.
  for (int i = 0; wanted != nullptr && i < count; ++i) {
    if (std::strcmp(wanted, usable.tables[i]->instruction_set) == 0) usable.best = usable.tables[i];
  }
  return usable;
}

// Chosen once, on first use; the initialisation of a static is thread-safe.
const Usable& usable() {
  static const Usable instance = find_usable();
  return instance;
}

template <typename T>
void fill(void* data, std::int64_t count, T value) {
  // Tensors need not be aligned, hence memcpy.
  auto* out = static_cast<char*>(data);
  for (std::int64_t i = 0; i < count; ++i, out += sizeof(T)) std::memcpy(out, &value, sizeof(T));
}

// The extreme that any element replaces: for a float an infinity, for an integer its limit.
template <typename T>
void fill_extreme(void* data, std::int64_t count, hora_reduce_op op) {
  using Limits = std::numeric_limits<T>;
  T value = 0;
  if (op == HORA_PRODUCT) value = 1;
  // The largest finite value would hide an infinity of another rank.
  if (op == HORA_MIN) value = Limits::has_infinity ? Limits::infinity() : Limits::max();
  if (op == HORA_MAX) {
    value = Limits::has_infinity ? static_cast<T>(-Limits::infinity()) : Limits::lowest();
  }
  fill<T>(data, count, value);
}

// `one` and `infinity` (positive) are bit patterns of a 16-bit float; the top bit is the sign.
void fill_narrow(void* data, std::int64_t count, hora_reduce_op op, std::uint16_t one,
                 std::uint16_t infinity) {
  std::uint16_t value = 0;
  if (op == HORA_PRODUCT) value = one;
  if (op == HORA_MIN) value = infinity;
  if (op == HORA_MAX) value = static_cast<std::uint16_t>(infinity | 0x8000u);
  fill<std::uint16_t>(data, count, value);
}

}  // namespace

const KernelTable& kernels() { return *usable().best; }
const KernelTable* const* usable_kernels() { return usable().tables; }

ReduceFunction reduce_function(hora_dtype dtype, hora_reduce_op op) {
  const KernelTable& table = kernels();
  // The indices follow the order in KernelTable.
  switch (op) {
    case HORA_AVERAGE:
    case HORA_SUM:
      return table.reduce[0][dtype];
    case HORA_MIN:
      return table.reduce[1][dtype];
    case HORA_MAX:
      return table.reduce[2][dtype];
    case HORA_PRODUCT:
      return table.reduce[3][dtype];
    case HORA_ADASUM:
      return nullptr;
  }
  return nullptr;
}

void fill_identity(void* data, std::int64_t count, hora_dtype dtype, hora_reduce_op op) {
  switch (dtype) {
    case HORA_UINT8:
      return fill_extreme<std::uint8_t>(data, count, op);
    case HORA_INT8:
      return fill_extreme<std::int8_t>(data, count, op);
    case HORA_UINT16:
      return fill_extreme<std::uint16_t>(data, count, op);
    case HORA_INT16:
      return fill_extreme<std::int16_t>(data, count, op);
    case HORA_INT32:
      return fill_extreme<std::int32_t>(data, count, op);
    case HORA_INT64:
      return fill_extreme<std::int64_t>(data, count, op);
    case HORA_FLOAT32:
      return fill_extreme<float>(data, count, op);
    case HORA_FLOAT64:
      return fill_extreme<double>(data, count, op);
    case HORA_FLOAT16:
      return fill_narrow(data, count, op, 0x3C00, 0x7C00);
    case HORA_BFLOAT16:
      return fill_narrow(data, count, op, 0x3F80, 0x7F80);
    case HORA_BOOL:
      return fill<std::uint8_t>(data, count, op == HORA_MIN || op == HORA_PRODUCT ? 1 : 0);
  }
}

void apply_scale(void* data, std::int64_t count, hora_dtype dtype, double factor,
                 std::int64_t divisor) {
  if (count == 0 || dtype == HORA_BOOL) return;
  // An integer average divides exactly; a factor of 1/n in double would be off by one at times.
  if (!is_floating(dtype) && factor == 1.0 && divisor != 1) {
    kernels().divide[dtype](data, count, divisor);
    return;
  }
  // One multiplication for both, so that the result is rounded once.
  const double combined = factor / static_cast<double>(divisor);
  if (combined != 1.0) kernels().scale[dtype](data, data, count, combined);
}

}  // namespace hora::collectives
