// SPDX-License-Identifier: Apache-2.0
// Eight binary16 or bfloat16 elements at a time with NEON, for kernels_impl.inc. Internal linkage,
// as in half.h.
//
// Every ARMv8 processor converts binary16 to float and back. FEAT_FP16 adds arithmetic on binary16,
// FEAT_BF16 the conversion to bfloat16; the compiler defines their macros where the build names
// them. NEON has no arithmetic on bfloat16. All conversions round to nearest even and keep
// subnormal numbers, as half.h does; a NaN comes out quiet with its sign and upper bits.
#pragma once

#include <arm_neon.h>

#include <cstdint>

#define HORA_EIGHT_HALVES 1

namespace hora::collectives {

// Loads bytes, since elements need not be aligned to their size.
static inline float16x8_t load_eight_halves(const char* from) {
  return vreinterpretq_f16_u8(vld1q_u8(reinterpret_cast<const std::uint8_t*>(from)));
}

static inline void store_eight_halves(char* to, float32x4_t low, float32x4_t high) {
  const float16x8_t packed = vcvt_high_f16_f32(vcvt_f16_f32(low), high);
  vst1q_u8(reinterpret_cast<std::uint8_t*>(to), vreinterpretq_u8_f16(packed));
}

template <typename Op>
static inline void reduce_eight_halves(char* out, const char* a, const char* b) {
  const float16x8_t x = load_eight_halves(a);
  const float16x8_t y = load_eight_halves(b);
#ifdef __ARM_FEATURE_FP16_VECTOR_ARITHMETIC
  // A float has more than twice the digits of a half, so rounding a sum or product of halves to
  // float first changes nothing: this gives the same bits with a quarter of the instructions. A
  // minimum or maximum goes through float all the same, which makes a signalling NaN quiet.
  if constexpr (!Op::kSelects) {
    vst1q_u8(reinterpret_cast<std::uint8_t*>(out), vreinterpretq_u8_f16(Op::apply(x, y)));
    return;
  }
#endif
  // Not vminq_f32() or vmaxq_f32(): their results differ for NaN and for zeros of different sign.
  store_eight_halves(out, Op::apply(vcvt_f32_f16(vget_low_f16(x)), vcvt_f32_f16(vget_low_f16(y))),
                     Op::apply(vcvt_high_f32_f16(x), vcvt_high_f32_f16(y)));
}

// The factor is a float, so the product needs one.
static inline void scale_eight_halves(char* out, const char* in, float factor) {
  const float16x8_t values = load_eight_halves(in);
  store_eight_halves(out, vmulq_n_f32(vcvt_f32_f16(vget_low_f16(values)), factor),
                     vmulq_n_f32(vcvt_high_f32_f16(values), factor));
}

static inline void add_eight_halves(float* sum, const char* in, float factor, bool first) {
  const float16x8_t values = load_eight_halves(in);
  const float32x4_t low = vmulq_n_f32(vcvt_f32_f16(vget_low_f16(values)), factor);
  const float32x4_t high = vmulq_n_f32(vcvt_high_f32_f16(values), factor);
  vst1q_f32(sum, first ? low : vaddq_f32(vld1q_f32(sum), low));
  vst1q_f32(sum + 4, first ? high : vaddq_f32(vld1q_f32(sum + 4), high));
}

static inline void round_eight_halves(char* out, const float* sum, float factor) {
  store_eight_halves(out, vmulq_n_f32(vld1q_f32(sum), factor),
                     vmulq_n_f32(vld1q_f32(sum + 4), factor));
}

#ifdef __ARM_FEATURE_BF16_VECTOR_ARITHMETIC
#define HORA_EIGHT_BFLOATS 1

struct EightBfloats {
  float32x4_t low;
  float32x4_t high;
};

// A bfloat16 is the upper half of a float.
static inline EightBfloats load_eight_bfloats(const char* from) {
  const uint16x8_t bits =
      vreinterpretq_u16_u8(vld1q_u8(reinterpret_cast<const std::uint8_t*>(from)));
  return {vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(bits), 16)),
          vreinterpretq_f32_u32(vshll_high_n_u16(bits, 16))};
}

static inline void store_eight_bfloats(char* to, const EightBfloats& values) {
  const bfloat16x8_t packed = vcvtq_high_bf16_f32(vcvtq_low_bf16_f32(values.low), values.high);
  vst1q_u8(reinterpret_cast<std::uint8_t*>(to), vreinterpretq_u8_bf16(packed));
}

template <typename Op>
static inline void reduce_eight_bfloats(char* out, const char* a, const char* b) {
  const EightBfloats x = load_eight_bfloats(a);
  const EightBfloats y = load_eight_bfloats(b);
  store_eight_bfloats(out, {Op::apply(x.low, y.low), Op::apply(x.high, y.high)});
}

static inline void scale_eight_bfloats(char* out, const char* in, float factor) {
  const EightBfloats values = load_eight_bfloats(in);
  store_eight_bfloats(out, {vmulq_n_f32(values.low, factor), vmulq_n_f32(values.high, factor)});
}
#endif

}  // namespace hora::collectives
