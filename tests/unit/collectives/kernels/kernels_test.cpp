// SPDX-License-Identifier: Apache-2.0
#include "collectives/kernels/kernels.h"

#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "collectives/kernels/half.h"
#include "tests/support/catch.h"

using namespace hora::collectives;

TEST_CASE("half: every bit pattern survives the way through float") {
  for (std::uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = half_to_float(half);
    const bool nan = (bits & 0x7C00) == 0x7C00 && (bits & 0x3FF) != 0;
    CHECK(std::isnan(value) == nan);
    if (!nan && float_to_half(value) != half) FAIL("half " << bits);
    const float wide = bfloat_to_float(half);
    if (!std::isnan(wide) && float_to_bfloat(wide) != half) FAIL("bfloat " << bits);
  }
}

TEST_CASE("half: known values, rounding to nearest even, limits") {
  CHECK(float_to_half(1.0f) == 0x3C00);
  CHECK(float_to_half(-2.0f) == 0xC000);
  CHECK(float_to_half(65504.0f) == 0x7BFF);
  CHECK(float_to_half(65519.9f) == 0x7BFF);
  CHECK(float_to_half(65520.0f) == 0x7C00);  // the first that rounds to infinity
  CHECK(float_to_half(5.9604645e-8f) == 0x0001);
  CHECK(float_to_half(2.98023e-8f) == 0x0000);  // half of the smallest: to even
  CHECK(float_to_half(1.0f + 1.0f / 2048) == 0x3C00);
  CHECK(float_to_half(1.0f + 3.0f / 2048) == 0x3C02);
  CHECK(std::isnan(half_to_float(float_to_half(NAN))));
  CHECK(float_to_bfloat(1.0f) == 0x3F80);
  CHECK(float_to_bfloat(1.00390625f) == 0x3F80);  // halfway: to even
  CHECK(float_to_bfloat(1.01171875f) == 0x3F82);
  CHECK(std::isnan(bfloat_to_float(float_to_bfloat(NAN))));
  CHECK(float_to_bfloat(INFINITY) == 0x7F80);
}

TEST_CASE("kernels: every instruction set gives the same bits") {
  std::mt19937 random(7);
  const std::int64_t count = 1031;  // odd, longer than any vector
  for (int dtype = 0; dtype < kDtypeCount; ++dtype) {
    const auto bytes =
        static_cast<std::size_t>(count) * dtype_bytes(static_cast<hora_dtype>(dtype));
    std::vector<unsigned char> a(bytes + 1);
    std::vector<unsigned char> b(bytes + 1);
    for (auto& byte : a) byte = static_cast<unsigned char>(random());
    for (auto& byte : b) byte = static_cast<unsigned char>(random());
    if (is_floating(static_cast<hora_dtype>(dtype))) {  // no NaN: which one wins is not defined
      for (std::size_t i = 0; i < bytes; ++i) {
        a[i + 1] &= 0xBF;
        b[i + 1] &= 0xBF;
      }
    }
    for (int op = 0; op < 4; ++op) {
      std::vector<unsigned char> expected(bytes);
      kernels().reduce[op][dtype](expected.data(), a.data() + 1, b.data() + 1, count);
      for (const KernelTable* const* table = usable_kernels(); *table != nullptr; ++table) {
        INFO((*table)->instruction_set << " dtype " << dtype << " op " << op);
        std::vector<unsigned char> out(bytes + 1);
        (*table)->reduce[op][dtype](out.data() + 1, a.data() + 1, b.data() + 1, count);
        CHECK(std::memcmp(out.data() + 1, expected.data(), bytes) == 0);
        std::vector<unsigned char> in_place(a.begin() + 1, a.end());
        (*table)->reduce[op][dtype](in_place.data(), in_place.data(), b.data() + 1, count);
        CHECK(std::memcmp(in_place.data(), expected.data(), bytes) == 0);
        std::vector<unsigned char> onto_right(b.begin() + 1, b.end());
        (*table)->reduce[op][dtype](onto_right.data(), a.data() + 1, onto_right.data(), count);
        CHECK(std::memcmp(onto_right.data(), expected.data(), bytes) == 0);
      }
    }
    for (double factor : {0.5, 1.0 / 3, -2.75}) {
      if (kernels().scale[dtype] == nullptr) continue;
      std::vector<unsigned char> expected(bytes);
      kernels().scale[dtype](expected.data(), a.data() + 1, count, factor);
      for (const KernelTable* const* table = usable_kernels(); *table != nullptr; ++table) {
        INFO((*table)->instruction_set << " dtype " << dtype << " times " << factor);
        std::vector<unsigned char> out(bytes);
        (*table)->scale[dtype](out.data(), a.data() + 1, count, factor);
        CHECK(out == expected);
      }
    }
  }
}

// A job may have ranks on processors of both architectures.
TEST_CASE("kernels: the bits are the same on every architecture") {
  constexpr std::int64_t kCount = 1031;
  for (const KernelTable* const* table = usable_kernels(); *table != nullptr; ++table) {
    INFO((*table)->instruction_set);
    std::mt19937 random(19);
    std::uint64_t digest = UINT64_C(14695981039346656037);  // FNV-1a
    for (int dtype = 0; dtype < kDtypeCount; ++dtype) {
      const auto type = static_cast<hora_dtype>(dtype);
      std::vector<unsigned char> a(kCount * dtype_bytes(type));
      std::vector<unsigned char> b(a.size());
      for (auto* each : {&a, &b}) {
        // No NaN: the processors pass on different ones.
        for (auto& byte : *each)
          byte = static_cast<unsigned char>(random() & (is_floating(type) ? 0xBF : 0xFF));
      }
      const auto digest_of = [&](const std::vector<unsigned char>& result) {
        for (const unsigned char byte : result) digest = (digest ^ byte) * UINT64_C(1099511628211);
      };
      std::vector<unsigned char> out(a.size());
      for (int op = 0; op < 4; ++op) {
        (*table)->reduce[op][dtype](out.data(), a.data(), b.data(), kCount);
        digest_of(out);
      }
      if ((*table)->scale[dtype] == nullptr) continue;
      for (double factor : {0.5, 1.0 / 3, -2.75, 1e-6}) {
        (*table)->scale[dtype](out.data(), a.data(), kCount, factor);
        digest_of(out);
      }
      if ((*table)->divide[dtype] != nullptr) {
        (*table)->divide[dtype](a.data(), kCount, 3);
      } else {
        (*table)->scale[dtype](a.data(), a.data(), kCount, 1.0 / 3);
      }
      digest_of(a);
    }
    CHECK(digest == UINT64_C(0x24afd7a0f47e5f03));  // of x86-64
  }
}

// For tests/arm64/run-kernels, which chooses the processor.
TEST_CASE("kernels: each processor has its tables") {
  const char* const expected = std::getenv("HORA_TEST_INSTRUCTION_SETS");
  std::string found;
  for (const KernelTable* const* table = usable_kernels(); *table != nullptr; ++table) {
    found += (found.empty() ? "" : " ") + std::string((*table)->instruction_set);
  }
  CHECK(found.substr(0, 8) == "baseline");
  if (expected != nullptr) CHECK(found == expected);
}

TEST_CASE("kernels: signed integers wrap, bools become 0 or 1") {
  const std::int32_t big[] = {INT32_MAX, INT32_MIN, 65536, -1};
  const std::int32_t more[] = {1, -1, 65536, 1};
  std::int32_t sum[4];
  reduce_function(HORA_INT32, HORA_SUM)(sum, big, more, 4);
  CHECK(sum[0] == INT32_MIN);
  CHECK(sum[1] == INT32_MAX);
  std::int32_t product[4];
  reduce_function(HORA_INT32, HORA_PRODUCT)(product, big, more, 4);
  CHECK(product[2] == 0);
  const std::uint16_t wide[] = {65535};
  std::uint16_t squared[1];
  reduce_function(HORA_UINT16, HORA_PRODUCT)(squared, wide, wide, 1);
  CHECK(squared[0] == 1);
  const std::uint8_t flags[] = {0, 7, 0, 255};
  const std::uint8_t others[] = {0, 0, 9, 1};
  std::uint8_t either[4];
  reduce_function(HORA_BOOL, HORA_SUM)(either, flags, others, 4);
  CHECK(std::vector<int>(either, either + 4) == std::vector<int>{0, 1, 1, 1});
  std::uint8_t both[4];
  reduce_function(HORA_BOOL, HORA_MIN)(both, flags, others, 4);
  CHECK(std::vector<int>(both, both + 4) == std::vector<int>{0, 0, 0, 1});
}

TEST_CASE("kernels: sums of 16-bit floats are wide on every instruction set") {
  constexpr std::int64_t kCount = 1031;
  std::mt19937 random(23);
  for (const hora_dtype dtype : {HORA_FLOAT16, HORA_BFLOAT16}) {
    const bool half = dtype == HORA_FLOAT16;
    std::vector<std::uint16_t> in(kCount);
    for (auto& each : in) each = static_cast<std::uint16_t>(random() & (half ? 0xFBFF : 0xFF7F));
    for (const KernelTable* const* table = usable_kernels(); *table != nullptr; ++table) {
      INFO((*table)->instruction_set << " " << dtype_name(dtype));
      const WideSum& wide = *(*table)->wide_sum(dtype);
      std::vector<float> sum(kCount);
      wide.add(sum.data(), in.data(), kCount, 0.25f, true);
      for (int i = 0; i < 3; ++i) wide.add(sum.data(), in.data(), kCount, 0.25f, false);
      std::vector<std::uint16_t> out(kCount);
      wide.round(out.data(), sum.data(), kCount, 1.0f);
      CHECK(out == in);  // the largest numbers, too
      CHECK(wide.all_finite(in.data(), kCount));
      for (const int place : {0, 1030}) {
        std::vector<std::uint16_t> infinite = in;
        infinite[static_cast<std::size_t>(place)] = half ? 0xFC00 : 0x7F81;  // or a NaN
        CHECK_FALSE(wide.all_finite(infinite.data(), kCount));
      }
    }
  }
  CHECK(kernels().wide_sum(HORA_FLOAT32) == nullptr);
}

TEST_CASE("apply_scale: averages of integers are exact and truncate toward zero") {
  std::int64_t large[] = {(INT64_C(1) << 60) + 3, -11, 11, -1, 0};
  apply_scale(large, 5, HORA_INT64, 1.0, 2);
  CHECK(large[0] == (INT64_C(1) << 59) + 1);  // no detour by way of double
  CHECK(large[1] == -5);
  CHECK(large[2] == 5);
  CHECK(large[3] == 0);
  std::int8_t narrow[] = {-100, 100, 127};
  apply_scale(narrow, 3, HORA_INT8, 1.0, 300);  // more ranks than the type can count
  CHECK(narrow[0] == 0);
  CHECK(narrow[2] == 0);
  std::uint8_t saturated[] = {200};
  apply_scale(saturated, 1, HORA_UINT8, 2.0, 1);
  CHECK(saturated[0] == 255);
  float floats[] = {3.0f, 1.0f};
  apply_scale(floats, 2, HORA_FLOAT32, 1.0, 3);
  CHECK(floats[0] == 1.0f);
  CHECK(floats[1] == 1.0f / 3.0f);
}

TEST_CASE("fill_identity: changes nothing under its reduction") {
  for (int dtype = 0; dtype < kDtypeCount; ++dtype) {
    for (hora_reduce_op op : {HORA_SUM, HORA_MIN, HORA_MAX, HORA_PRODUCT}) {
      const auto type = static_cast<hora_dtype>(dtype);
      std::vector<unsigned char> identity(dtype_bytes(type));
      std::vector<unsigned char> value(dtype_bytes(type), 0);
      value.back() = type == HORA_BOOL ? 1 : 0x41;
      fill_identity(identity.data(), 1, type, op);
      std::vector<unsigned char> out(dtype_bytes(type));
      reduce_function(type, op)(out.data(), value.data(), identity.data(), 1);
      INFO(dtype_name(type) << " " << reduce_op_name(op));
      CHECK(out == value);
    }
  }
}
