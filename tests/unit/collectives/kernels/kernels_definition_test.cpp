// SPDX-License-Identifier: Apache-2.0
// Every table of kernels against the definition of the arithmetic, one element at a time: vector
// units differ in NaNs, signed zeros, subnormal numbers, rounding and saturation, and in what they
// do at the ends of arrays.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "collectives/kernels/half.h"
#include "collectives/kernels/kernels.h"
#include "tests/support/catch.h"

using namespace hora::collectives;

namespace {

constexpr int kOps = 4;  // in the order of KernelTable: sum, min, max, product

template <typename T>
T combine(int op, T a, T b) {
  switch (op) {
    case 0:
      return a + b;
    case 1:
      return b < a || std::isnan(b) ? b : a;
    case 2:
      return a < b || std::isnan(b) ? b : a;
    default:
      return a * b;
  }
}

template <typename Function>
void for_each_table(const Function& function) {
  for (const KernelTable* const* table = usable_kernels(); *table != nullptr; ++table) {
    INFO((*table)->instruction_set);
    function(**table);
  }
}

// A 16-bit format, which exists only as conversions.
struct Narrow {
  hora_dtype dtype;
  float (*widen)(std::uint16_t);
  std::uint16_t (*narrow)(float);
  std::uint16_t infinity;
};
const Narrow kHalf{HORA_FLOAT16, half_to_float, float_to_half, 0x7C00};
const Narrow kBfloat{HORA_BFLOAT16, bfloat_to_float, float_to_bfloat, 0x7F80};

std::vector<std::uint16_t> every_pattern() {
  std::vector<std::uint16_t> all(0x10000);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  return all;
}

// Both zeros, the ends of the subnormal and normal numbers, one and its neighbour, both
// infinities, a quiet and a signalling NaN.
std::vector<std::uint16_t> special_patterns(const Narrow& format) {
  const std::uint16_t infinity = format.infinity;
  const std::uint16_t one = format.narrow(1.0f);
  const std::uint16_t smallest_normal = infinity & static_cast<std::uint16_t>(~infinity + 1u);
  const auto with = [](int a, int b) { return static_cast<std::uint16_t>(a + b); };
  return {0,
          0x8000,
          1,
          with(smallest_normal, -1),
          smallest_normal,
          with(one, 1),
          with(0x8000, one),
          with(infinity, -1),
          infinity,
          with(0x8000, infinity),
          with(infinity, smallest_normal / 2 + 5),
          with(0x8000, infinity + 3)};
}

// Where both operands are NaNs, either may come out.
void expect_reduced(const Narrow& format, const std::vector<std::uint16_t>& a,
                    const std::vector<std::uint16_t>& b) {
  std::vector<std::uint16_t> expected(a.size());
  std::vector<std::uint16_t> out(a.size());
  for (int op = 0; op < kOps; ++op) {
    for (std::size_t i = 0; i < a.size(); ++i) {
      expected[i] = format.narrow(combine(op, format.widen(a[i]), format.widen(b[i])));
    }
    for_each_table([&](const KernelTable& table) {
      table.reduce[op][format.dtype](out.data(), a.data(), b.data(),
                                     static_cast<std::int64_t>(a.size()));
      const bool selects = op == 1 || op == 2;
      for (std::size_t i = 0; i < a.size(); ++i) {
        if (out[i] == expected[i]) continue;
        const bool two_nans =
            std::isnan(format.widen(a[i])) && std::isnan(format.widen(b[i])) && !selects;
        if (two_nans && std::isnan(format.widen(out[i]))) continue;
        FAIL(dtype_name(format.dtype) << " op " << op << ": " << a[i] << ", " << b[i] << " gives "
                                      << out[i] << " instead of " << expected[i]);
      }
    });
  }
}

template <typename T>
std::vector<T> special_floats() {
  using Limits = std::numeric_limits<T>;
  std::vector<T> values{0,
                        1,
                        T(1) / 3,
                        1 + Limits::epsilon(),
                        Limits::denorm_min(),
                        Limits::min() - Limits::denorm_min(),
                        Limits::min(),
                        Limits::max(),
                        Limits::infinity(),
                        Limits::quiet_NaN()};
  const std::size_t positive = values.size();
  for (std::size_t i = 0; i < positive; ++i) values.push_back(-values[i]);
  return values;
}

template <typename T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

template <typename T>
void expect_float_definition(hora_dtype dtype) {
  std::vector<T> a;
  std::vector<T> b;
  for (const T left : special_floats<T>()) {
    for (const T right : special_floats<T>()) {
      if (std::isnan(left) && std::isnan(right)) continue;
      a.push_back(left);
      b.push_back(right);
    }
  }
  const auto count = static_cast<std::int64_t>(a.size());
  std::vector<T> expected(a.size());
  std::vector<T> out(a.size());
  for (int op = 0; op < kOps; ++op) {
    std::transform(a.begin(), a.end(), b.begin(), expected.begin(),
                   [&](T left, T right) { return combine(op, left, right); });
    for_each_table([&](const KernelTable& table) {
      INFO(dtype_name(dtype) << " op " << op);
      table.reduce[op][dtype](out.data(), a.data(), b.data(), count);
      CHECK(same_bits(out, expected));
    });
  }
  for (const double factor : {0.5, 1.0 / 3, -2.75, 1e-40, 1e300, 0.0}) {
    std::transform(a.begin(), a.end(), expected.begin(),
                   [&](T value) { return value * static_cast<T>(factor); });
    for_each_table([&](const KernelTable& table) {
      INFO(dtype_name(dtype) << " times " << factor);
      table.scale[dtype](out.data(), a.data(), count, factor);
      CHECK(same_bits(out, expected));
    });
  }
}

template <typename T>
T scaled(T value, double factor) {
  const double product = static_cast<double>(value) * factor;
  if (std::isnan(product)) return 0;
  if (product >= static_cast<double>(std::numeric_limits<T>::max())) {
    return std::numeric_limits<T>::max();
  }
  if (product <= static_cast<double>(std::numeric_limits<T>::min())) {
    return std::numeric_limits<T>::min();
  }
  return static_cast<T>(product);
}

template <typename T>
void expect_integer_definition(hora_dtype dtype) {
  std::mt19937_64 random(11);
  std::vector<T> in{0, 1, static_cast<T>(-1), std::numeric_limits<T>::min(),
                    std::numeric_limits<T>::max()};
  while (in.size() < 103) in.push_back(static_cast<T>(random()));
  std::vector<T> expected(in.size());
  std::vector<T> out(in.size());
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double factor : {0.5, 1.0 / 3, -2.75, 1e30, 0.0, infinity, -infinity,
                              std::numeric_limits<double>::quiet_NaN()}) {
    std::transform(in.begin(), in.end(), expected.begin(),
                   [&](T value) { return scaled(value, factor); });
    for_each_table([&](const KernelTable& table) {
      INFO(dtype_name(dtype) << " times " << factor);
      table.scale[dtype](out.data(), in.data(), static_cast<std::int64_t>(in.size()), factor);
      CHECK(same_bits(out, expected));
      std::vector<T> in_place = in;
      table.scale[dtype](in_place.data(), in_place.data(), static_cast<std::int64_t>(in.size()),
                         factor);
      CHECK(same_bits(in_place, expected));
    });
  }
}

}  // namespace

TEST_CASE("kernels: 16-bit floats follow their definition for every bit pattern") {
  const std::vector<std::uint16_t> all = every_pattern();
  for (const Narrow* format : {&kHalf, &kBfloat}) {
    for (const std::uint16_t pattern : special_patterns(*format)) {
      const std::vector<std::uint16_t> same(all.size(), pattern);
      expect_reduced(*format, all, same);
      expect_reduced(*format, same, all);
    }
  }
}

TEST_CASE("kernels: 16-bit floats follow their definition for random pairs") {
  std::mt19937 random(5);
  std::vector<std::uint16_t> a(100'003);
  std::vector<std::uint16_t> b(a.size());
  for (auto* each : {&a, &b}) {
    for (auto& value : *each) value = static_cast<std::uint16_t>(random());
  }
  expect_reduced(kHalf, a, b);
  expect_reduced(kBfloat, a, b);
}

TEST_CASE("kernels: scaled 16-bit floats follow their definition for every bit pattern") {
  const std::vector<std::uint16_t> all = every_pattern();
  std::vector<std::uint16_t> expected(all.size());
  std::vector<std::uint16_t> out(all.size());
  for (const Narrow* format : {&kHalf, &kBfloat}) {
    for (const double factor : {1.0, 0.5, 1.0 / 3, -2.75, 3e-8, 1e-39, 65504.0, 1e30, 0.0}) {
      const auto narrow = static_cast<float>(factor);
      std::transform(all.begin(), all.end(), expected.begin(), [&](std::uint16_t bits) {
        return format->narrow(format->widen(bits) * narrow);
      });
      for_each_table([&](const KernelTable& table) {
        INFO(dtype_name(format->dtype) << " times " << factor);
        table.scale[format->dtype](out.data(), all.data(), static_cast<std::int64_t>(all.size()),
                                   factor);
        CHECK(same_bits(out, expected));
      });
    }
  }
}

TEST_CASE("kernels: float32 and float64 follow their definition for special values") {
  expect_float_definition<float>(HORA_FLOAT32);
  expect_float_definition<double>(HORA_FLOAT64);
}

TEST_CASE("kernels: scaled integers saturate, and a NaN becomes 0") {
  expect_integer_definition<std::uint8_t>(HORA_UINT8);
  expect_integer_definition<std::int8_t>(HORA_INT8);
  expect_integer_definition<std::uint16_t>(HORA_UINT16);
  expect_integer_definition<std::int16_t>(HORA_INT16);
  expect_integer_definition<std::int32_t>(HORA_INT32);
  expect_integer_definition<std::int64_t>(HORA_INT64);
}

TEST_CASE("kernels: any length and alignment, and nothing beyond the ends") {
  constexpr std::int64_t kMost = 67;
  constexpr unsigned char kUntouched = 0xA5;
  std::mt19937 random(3);
  for (int dtype = 0; dtype < kDtypeCount; ++dtype) {
    const auto type = static_cast<hora_dtype>(dtype);
    const std::size_t width = dtype_bytes(type);
    std::vector<unsigned char> a(kMost * width + 16);
    std::vector<unsigned char> b(a.size());
    // Without the bit that all NaNs have: which of two comes out is not defined.
    const unsigned char mask = is_floating(type) ? 0xBF : 0xFF;
    for (auto* each : {&a, &b}) {
      for (auto& byte : *each) byte = static_cast<unsigned char>(random() & mask);
    }
    for (int op = 0; op < kOps; ++op) {
      for (const std::size_t shift : {0, 1, 6}) {
        const unsigned char* const left = a.data() + shift;
        const unsigned char* const right = b.data() + 16 - shift;
        // One element at a time, which no vector can hold.
        std::vector<unsigned char> expected(kMost * width);
        for (std::size_t i = 0; i < kMost; ++i) {
          usable_kernels()[0]->reduce[op][dtype](expected.data() + i * width, left + i * width,
                                                 right + i * width, 1);
        }
        for_each_table([&](const KernelTable& table) {
          for (std::int64_t count = 0; count <= kMost; ++count) {
            const auto bytes = static_cast<std::size_t>(count) * width;
            std::vector<unsigned char> out(bytes + 32, kUntouched);
            unsigned char* const begin = out.data() + 16 - shift;
            table.reduce[op][dtype](begin, left, right, count);
            const bool equal = bytes == 0 || std::memcmp(begin, expected.data(), bytes) == 0;
            const auto untouched = std::count(out.data(), begin, kUntouched) +
                                   std::count(begin + bytes, out.data() + out.size(), kUntouched);
            if (equal && untouched == 32) continue;
            FAIL(dtype_name(type) << " op " << op << ", " << count << " elements, shifted by "
                                  << shift << (equal ? ": wrote beyond the ends" : ": wrong"));
          }
        });
      }
    }
  }
}
