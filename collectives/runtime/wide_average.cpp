// SPDX-License-Identifier: Apache-2.0
#include "collectives/runtime/wide_average.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "collectives/kernels/kernels.h"
#include "collectives/types.h"

namespace hora::collectives {

// All tensors of a step are packed into one of the wide type, so the backend sees a plain sum. The
// decisions here follow from the step and from its result, which are the same on all ranks.

namespace {

using Total = __int128;

constexpr std::int64_t kLowBits = 32;  // of a 64-bit integer's lower half

hora_dtype dtype_of(const Step& step) { return static_cast<hora_dtype>(step.dtype); }
std::int64_t width_of(hora_dtype dtype) { return static_cast<std::int64_t>(dtype_bytes(dtype)); }

// The tensors of callers need not be aligned, hence memcpy.
template <typename T>
T read(const void* base, std::int64_t index) {
  T value;
  std::memcpy(&value, static_cast<const char*>(base) + index * std::int64_t{sizeof(T)}, sizeof(T));
  return value;
}
template <typename T>
void write(void* base, std::int64_t index, T value) {
  std::memcpy(static_cast<char*>(base) + index * std::int64_t{sizeof(T)}, &value, sizeof(T));
}

template <typename Narrow, typename Wide>
void widen_integers(void* wide, const void* narrow, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) write<Wide>(wide, i, read<Narrow>(narrow, i));
}

// A 64-bit integer is high * 2^32 + low. The halves are added in 64 bits, which 2^31 ranks cannot
// exceed.
void split_integers(void* halves, const void* numbers, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const auto number = read<std::int64_t>(numbers, i);
    write<std::int64_t>(halves, 2 * i, number >> kLowBits);
    write<std::int64_t>(halves, 2 * i + 1, number & 0xFFFFFFFF);
  }
}

void widen_numbers(void* wide, const void* narrow, std::int64_t count, hora_dtype dtype) {
  switch (dtype) {
    case HORA_UINT8:
      return widen_integers<std::uint8_t, std::int32_t>(wide, narrow, count);
    case HORA_INT8:
      return widen_integers<std::int8_t, std::int32_t>(wide, narrow, count);
    case HORA_UINT16:
      return widen_integers<std::uint16_t, std::int32_t>(wide, narrow, count);
    case HORA_INT16:
      return widen_integers<std::int16_t, std::int32_t>(wide, narrow, count);
    case HORA_INT32:
      return widen_integers<std::int32_t, std::int64_t>(wide, narrow, count);
    default:
      return split_integers(wide, narrow, count);
  }
}

// The factor and the divisor of the average.
struct Rest {
  double factor;
  std::int64_t divisor;
};

// Exact unless there is a factor; out of range it saturates, as in the kernels.
template <typename T>
T quotient(Total total, const Rest& rest) {
  if (rest.factor == 1.0) return static_cast<T>(total / rest.divisor);
  const double value =
      static_cast<double>(total) * (rest.factor / static_cast<double>(rest.divisor));
  using Limits = std::numeric_limits<T>;
  if (value >= static_cast<double>(Limits::max())) return Limits::max();
  if (value <= static_cast<double>(Limits::min())) return Limits::min();
  return value == value ? static_cast<T>(value) : T{0};
}

template <typename Narrow, typename Wide>
void narrow_integers(void* narrow, const void* wide, std::int64_t count, const Rest& rest) {
  for (std::int64_t i = 0; i < count; ++i) {
    write<Narrow>(narrow, i, quotient<Narrow>(read<Wide>(wide, i), rest));
  }
}

void join_integers(void* numbers, const void* halves, std::int64_t count, const Rest& rest) {
  for (std::int64_t i = 0; i < count; ++i) {
    const Total high = read<std::int64_t>(halves, 2 * i);
    const Total total = high * (Total{1} << kLowBits) + read<std::int64_t>(halves, 2 * i + 1);
    write<std::int64_t>(numbers, i, quotient<std::int64_t>(total, rest));
  }
}

void narrow_numbers(void* narrow, const void* wide, std::int64_t count, hora_dtype dtype,
                    const Rest& rest) {
  switch (dtype) {
    case HORA_UINT8:
      return narrow_integers<std::uint8_t, std::int32_t>(narrow, wide, count, rest);
    case HORA_INT8:
      return narrow_integers<std::int8_t, std::int32_t>(narrow, wide, count, rest);
    case HORA_UINT16:
      return narrow_integers<std::uint16_t, std::int32_t>(narrow, wide, count, rest);
    case HORA_INT16:
      return narrow_integers<std::int16_t, std::int32_t>(narrow, wide, count, rest);
    case HORA_INT32:
      return narrow_integers<std::int32_t, std::int64_t>(narrow, wide, count, rest);
    default:
      return join_integers(narrow, wide, count, rest);
  }
}

}  // namespace

bool WideAverage::is_needed(const Step& step, bool wide) {
  if (step.divisor == 1) return false;
  const hora_dtype dtype = dtype_of(step);
  return !is_floating(dtype) || (!wide && kernels().wide_sum(dtype) != nullptr);
}

hora_dtype WideAverage::wide_dtype(hora_dtype dtype) {
  if (is_floating(dtype)) return HORA_FLOAT32;
  return width_of(dtype) <= 2 ? HORA_INT32 : HORA_INT64;
}

int WideAverage::elements_per_number(hora_dtype dtype) { return dtype == HORA_INT64 ? 2 : 1; }

// In elements, of this rank's result.
std::int64_t WideAverage::given_back(const Piece& piece) const {
  return plain_.operation == HORA_REDUCESCATTER ? plain_.receive_counts[set_index_] : piece.count;
}

void WideAverage::prepare(Step& step) {
  plain_ = step;
  pieces_.assign(step.pieces, step.pieces + step.piece_count);
  if (!is_floating(dtype_of(step)) || step.operation == HORA_REDUCESCATTER) return widen(step);
  // The step overwrites what it reduces in place, and a second run needs it.
  std::int64_t bytes = 0;
  for (const Piece& piece : pieces_) bytes += piece.count * width_of(dtype_of(step));
  char* place = kept_->room(bytes);
  for (Piece& piece : pieces_) {
    if (piece.input != piece.output) continue;
    const std::int64_t its = piece.count * width_of(dtype_of(step));
    copy_unless_same(place, piece.input, its);
    piece.input = place;
    place += its;
  }
}

void WideAverage::widen(Step& step) {
  const hora_dtype dtype = dtype_of(plain_);
  const hora_dtype wide = wide_dtype(dtype);
  const std::int64_t per_number = elements_per_number(dtype);
  const std::int64_t wide_width = width_of(wide) * per_number;
  std::int64_t count = 0;
  for (const Piece& piece : pieces_) count += piece.count;
  sent_.resize(static_cast<std::size_t>(count * wide_width));
  char* place = sent_.data();
  const WideSum* const floats = kernels().wide_sum(dtype);
  std::vector<char> scaled;
  for (const Piece& piece : pieces_) {
    if (floats != nullptr) {
      // Divided first: the sum of the largest bfloat16 numbers is too large for float32.
      const double share = plain_.prescale / static_cast<double>(plain_.divisor);
      auto* const sum = reinterpret_cast<float*>(place);
      floats->add(sum, piece.input, piece.count, static_cast<float>(share), true);
    } else if (plain_.prescale != 1.0) {
      scaled.resize(static_cast<std::size_t>(piece.count * width_of(dtype)));
      kernels().scale[dtype](scaled.data(), piece.input, piece.count, plain_.prescale);
      widen_numbers(place, scaled.data(), piece.count, dtype);
    } else {
      widen_numbers(place, piece.input, piece.count, dtype);
    }
    place += piece.count * wide_width;
  }
  wide_ = {sent_.data(), sent_.data(), count * per_number, nullptr};
  // Its output has other elements than its input, so it cannot work in place.
  if (plain_.operation == HORA_REDUCESCATTER) {
    received_.resize(static_cast<std::size_t>(given_back(pieces_[0]) * wide_width));
    wide_.output = received_.data();
    receive_counts_.assign(plain_.receive_counts, plain_.receive_counts + set_size_);
    for (std::int64_t& each : receive_counts_) each *= per_number;
    step.receive_counts = receive_counts_.data();
  }
  step.dtype = wide;
  step.divisor = 1;
  step.prescale = 1.0;
  step.postscale = 1.0;
  step.pieces = &wide_;
  step.piece_count = 1;
  is_wide_ = true;
}

bool WideAverage::all_finite() const {
  const WideSum& floats = *kernels().wide_sum(dtype_of(plain_));
  return std::all_of(pieces_.begin(), pieces_.end(), [&](const Piece& piece) {
    return floats.all_finite(piece.output, piece.count);
  });
}

void WideAverage::narrow(const Step& step) const {
  const hora_dtype dtype = dtype_of(plain_);
  const std::int64_t wide_width = width_of(dtype_of(step)) * elements_per_number(dtype);
  const WideSum* const floats = kernels().wide_sum(dtype);
  const auto* place = static_cast<const char*>(wide_.output);
  for (const Piece& piece : pieces_) {
    const std::int64_t count = given_back(piece);
    if (floats != nullptr) {
      const auto* const sum = reinterpret_cast<const float*>(place);
      floats->round(piece.output, sum, count, static_cast<float>(plain_.postscale));
    } else {
      narrow_numbers(piece.output, place, count, dtype, {plain_.postscale, plain_.divisor});
    }
    place += count * wide_width;
  }
}

bool WideAverage::runs_again(Step& step) {
  if (is_wide_) {
    narrow(step);
    return false;
  }
  if (all_finite()) return false;
  widen(step);
  return true;
}

}  // namespace hora::collectives
