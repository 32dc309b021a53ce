// SPDX-License-Identifier: Apache-2.0
// In round d (distance 1, 2, 4, ...) partners index ^ d swap halves of what they hold, so each
// holds both vectors on its half; the inner products are summed over the block of 2d ranks that
// share the two vectors, and each rank combines its half. After the last round each rank holds
// 1/size of the result, which an allgather completes.
//     adasum(a, b) = (1 - a.b / 2|a|^2) a + (1 - a.b / 2|b|^2) b
#include "collectives/algorithms/adasum.h"

#include <cfloat>
#include <cmath>
#include <cstring>
#include <vector>

#include "collectives/kernels/half.h"
#include "collectives/kernels/kernels.h"

namespace hora::collectives {

namespace {

// The inner products of two vectors, or of a rank's parts of them. In double: float32 would lose
// digits in long sums.
struct Products {
  double dot = 0;
  double left = 0;   // norm squared
  double right = 0;  // norm squared
};

// Sums in independent lanes, so that the compiler can vectorise the loop without reordering it: the
// order, and so the result, is always the same.
template <typename Real>
Products multiply(const Real* left, const Real* right, std::int64_t count) {
  constexpr int kLanes = 8;
  double dot[kLanes] = {};
  double norm_left[kLanes] = {};
  double norm_right[kLanes] = {};
  std::int64_t at = 0;
  for (; at + kLanes <= count; at += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const auto a = static_cast<double>(left[at + lane]);
      const auto b = static_cast<double>(right[at + lane]);
      dot[lane] += a * b;
      norm_left[lane] += a * a;
      norm_right[lane] += b * b;
    }
  }
  for (int lane = 0; at < count; ++at, ++lane) {
    const auto a = static_cast<double>(left[at]);
    const auto b = static_cast<double>(right[at]);
    dot[lane] += a * b;
    norm_left[lane] += a * a;
    norm_right[lane] += b * b;
  }
  Products sum;
  for (int lane = 0; lane < kLanes; ++lane) {
    sum.dot += dot[lane];
    sum.left += norm_left[lane];
    sum.right += norm_right[lane];
  }
  return sum;
}

// The share of a vector of this norm in the sum. A zero vector has no direction, and dividing by
// its norm would give a NaN.
double share(double dot, double norm_squared) {
  static const double smallest = std::sqrt(DBL_MIN);
  return norm_squared < smallest ? 1.0 : 1.0 - dot / (2.0 * norm_squared);
}

// The operands keep their sides (the lower rank's is left) on both halves, so an element's bits do
// not depend on which rank computes it.
template <typename Real>
void combine(Real* out, const Real* left, const Real* right, std::int64_t count,
             const Products& products) {
  const double of_left = share(products.dot, products.left);
  const double of_right = share(products.dot, products.right);
  for (std::int64_t i = 0; i < count; ++i) {
    out[i] = static_cast<Real>(of_left * static_cast<double>(left[i]) +
                               of_right * static_cast<double>(right[i]));
  }
}

// A stretch of the vector, in elements.
struct Stretch {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t count() const { return end - begin; }
};

// The stretch that a rank holds when the vector has been halved by all distances below `distance`.
Stretch held_by(int index, std::int64_t count, int distance) {
  Stretch held{0, count};
  for (int each = 1; each < distance; each *= 2) {
    const std::int64_t middle = held.begin + held.count() / 2;
    ((index & each) == 0 ? held.end : held.begin) = middle;
  }
  return held;
}

class Group {
 public:
  Group(Backend& backend, int index, int size, ErrorText& error)
      : backend_(backend), index_(index), size_(size), error_(error) {}

  template <typename Real>
  bool reduce(Real* data, std::int64_t count, hora_dtype dtype) {
    // The larger half of an odd count.
    std::vector<Real> theirs(static_cast<std::size_t>((count + 1) / 2));
    for (int distance = 1; distance < size_; distance *= 2) {
      const Stretch whole = held_by(index_, count, distance);
      const Stretch mine = held_by(index_, count, 2 * distance);
      const bool lower = (index_ & distance) == 0;
      // The half that the partner keeps, and this rank gives away.
      const Stretch other = lower ? Stretch{mine.end, whole.end} : Stretch{whole.begin, mine.begin};
      if (!swap(index_ ^ distance, data + other.begin, other.count(), theirs.data(), mine.count(),
                dtype)) {
        return false;
      }
      Real* const own = data + mine.begin;
      const Real* const left = lower ? own : theirs.data();
      const Real* const right = lower ? theirs.data() : own;
      Products products = multiply(left, right, mine.count());
      if (!sum_over_block(2 * distance, products)) return false;
      combine(own, left, right, mine.count(), products);
    }
    return gather(data, count, dtype);
  }

 private:
  // The algorithm needs each result before the next step, so this waits for the backend.
  bool run(Step& step) {
    std::uint64_t ticket = 0;
    Progress progress = backend_.execute(step, &ticket, error_);
    while (progress == Progress::kPending) progress = backend_.poll(ticket, error_);
    return progress == Progress::kDone;
  }

  bool allgather(const Piece& piece, hora_dtype dtype, const std::vector<std::int64_t>& counts) {
    Step step;
    step.operation = HORA_ALLGATHER;
    step.dtype = dtype;
    step.pieces = &piece;
    step.piece_count = 1;
    step.receive_counts = counts.data();
    return run(step);
  }

  // Swaps with one partner, by an alltoall in which each rank gives to its partner only.
  bool swap(int partner, const void* give, std::int64_t give_count, void* take,
            std::int64_t take_count, hora_dtype dtype) {
    const auto at = static_cast<std::size_t>(partner);
    std::vector<std::int64_t> sends(static_cast<std::size_t>(size_), 0);
    std::vector<std::int64_t> receives(sends);
    sends[at] = give_count;
    receives[at] = take_count;
    const Piece piece{give, take, give_count};
    Step step;
    step.operation = HORA_ALLTOALL;
    step.dtype = dtype;
    step.pieces = &piece;
    step.piece_count = 1;
    step.send_counts = sends.data();
    step.receive_counts = receives.data();
    return run(step);
  }

  // Sums over the block of ranks that hold the same two vectors together, in the order of the
  // ranks, so that all of them get the same result. The allgather spans all ranks, because the
  // backend knows no smaller set.
  bool sum_over_block(int block, Products& products) {
    const std::vector<std::int64_t> counts(static_cast<std::size_t>(size_), 3);
    std::vector<Products> all(counts.size());
    const Products own = products;
    if (!allgather({&own, all.data(), 3}, HORA_FLOAT64, counts)) return false;
    products = Products();
    const int first = index_ / block * block;
    for (int rank = first; rank < first + block; ++rank) {
      const Products& each = all[static_cast<std::size_t>(rank)];
      products.dot += each.dot;
      products.left += each.left;
      products.right += each.right;
    }
    return true;
  }

  // Gives all stretches to all ranks. They are not in the order of the ranks, hence the copies.
  template <typename Real>
  bool gather(Real* data, std::int64_t count, hora_dtype dtype) {
    std::vector<std::int64_t> counts;
    for (int rank = 0; rank < size_; ++rank) counts.push_back(held_by(rank, count, size_).count());
    std::vector<Real> all(static_cast<std::size_t>(count));
    const Stretch mine = held_by(index_, count, size_);
    if (!allgather({data + mine.begin, all.data(), mine.count()}, dtype, counts)) return false;
    const Real* from = all.data();
    for (int rank = 0; rank < size_; ++rank) {
      const Stretch held = held_by(rank, count, size_);
      if (held.count() > 0) {
        std::memcpy(data + held.begin, from, static_cast<std::size_t>(held.count()) * sizeof(Real));
      }
      from += held.count();
    }
    return true;
  }

  Backend& backend_;
  int index_;
  int size_;
  ErrorText& error_;
};

// Rounds once, at the end, instead of in each round.
template <typename Widen, typename Narrow>
bool reduce_half(Group& group, void* data, std::int64_t count, Widen widen, Narrow narrow) {
  auto* const bits = static_cast<std::uint16_t*>(data);
  std::vector<float> wide(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) wide[static_cast<std::size_t>(i)] = widen(bits[i]);
  if (!group.reduce(wide.data(), count, HORA_FLOAT32)) return false;
  for (std::int64_t i = 0; i < count; ++i) bits[i] = narrow(wide[static_cast<std::size_t>(i)]);
  return true;
}

bool reduce_piece(Group& group, void* data, std::int64_t count, hora_dtype dtype,
                  ErrorText& error) {
  switch (dtype) {
    case HORA_FLOAT32:
      return group.reduce(static_cast<float*>(data), count, dtype);
    case HORA_FLOAT64:
      return group.reduce(static_cast<double*>(data), count, dtype);
    case HORA_FLOAT16:
      return reduce_half(group, data, count, half_to_float, float_to_half);
    case HORA_BFLOAT16:
      return reduce_half(group, data, count, bfloat_to_float, float_to_bfloat);
    default:
      return error.set("adasum supports only floating-point tensors");
  }
}

}  // namespace

bool adasum(Backend& backend, int index, int size, const Step& step, ErrorText& error) {
  const auto dtype = static_cast<hora_dtype>(step.dtype);
  Group group(backend, index, size, error);
  for (int i = 0; i < step.piece_count; ++i) {
    const Piece& piece = step.pieces[i];
    const auto bytes = static_cast<std::size_t>(piece.count) * dtype_bytes(dtype);
    if (bytes > 0 && piece.output != piece.input) std::memcpy(piece.output, piece.input, bytes);
    apply_scale(piece.output, piece.count, dtype, step.prescale, 1);
    if (!reduce_piece(group, piece.output, piece.count, dtype, error)) return false;
    // No divisor: Adasum is not a sum that could become an average.
    apply_scale(piece.output, piece.count, dtype, step.postscale, 1);
  }
  return true;
}

}  // namespace hora::collectives
