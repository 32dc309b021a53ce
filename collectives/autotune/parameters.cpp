// SPDX-License-Identifier: Apache-2.0
// The search works in a unit cube, whatever the parameters mean. Each free parameter is a
// dimension, in a fixed order that at() and point_of() share.
#include "collectives/autotune/parameters.h"

#include <algorithm>
#include <cmath>

namespace hora::collectives {

namespace {

// The powers of two between which the search looks for a size.
struct Sizes {
  double least;
  double most;

  std::int64_t at(double x) const {
    return std::int64_t{1} << std::lround(least + x * (most - least));
  }
  double of(std::int64_t bytes) const {
    const double log = std::log2(static_cast<double>(std::max<std::int64_t>(bytes, 1)));
    return std::clamp((log - least) / (most - least), 0.0, 1.0);
  }
};

constexpr Sizes kFusion{16, 27};    // 64 KiB .. 128 MiB
constexpr Sizes kShmSmall{10, 17};  // 1 .. 128 KiB
constexpr Sizes kShmPart{13, 17};   // 8 .. 128 KiB
constexpr double kMostCycleUs = 5000;

}  // namespace

std::vector<std::int64_t> to_numbers(const Parameters& parameters) {
  // The order is part of the protocol: kTune carries these numbers.
  return {parameters.fusion_threshold_bytes, parameters.cycle_time_us,
          parameters.hierarchical_allreduce ? 1 : 0, parameters.shm_small_bytes,
          parameters.shm_part_bytes};
}

std::optional<Parameters> from_numbers(const std::vector<std::int64_t>& numbers) {
  // The numbers come from another process.
  if (numbers.size() != 5) return std::nullopt;
  if (std::any_of(numbers.begin(), numbers.end(), [](auto each) { return each < 0; })) {
    return std::nullopt;
  }
  return Parameters{numbers[0], numbers[1], numbers[2] != 0, numbers[3], numbers[4]};
}

Parameters ParameterSpace::at(const Point& point) const {
  Parameters result = fixed_;
  auto next = point.begin();
  if (tunables_.fusion) result.fusion_threshold_bytes = kFusion.at(*next++);
  if (tunables_.cycle_time) {  // cubic: short times get finer steps than long ones
    const double x = *next++;
    result.cycle_time_us = std::lround(kMostCycleUs * x * x * x / 50) * 50;
  }
  if (tunables_.hierarchical) result.hierarchical_allreduce = *next++ >= 0.5;
  if (tunables_.shm) {
    result.shm_small_bytes = kShmSmall.at(*next++);
    result.shm_part_bytes = kShmPart.at(*next++);
  }
  return result;
}

Point ParameterSpace::point_of(const Parameters& parameters) const {
  Point point;
  if (tunables_.fusion) point.push_back(kFusion.of(parameters.fusion_threshold_bytes));
  if (tunables_.cycle_time) {
    // The inverse of the cubic scale in at().
    const double share = static_cast<double>(parameters.cycle_time_us) / kMostCycleUs;
    point.push_back(std::cbrt(std::clamp(share, 0.0, 1.0)));
  }
  if (tunables_.hierarchical) point.push_back(parameters.hierarchical_allreduce ? 1.0 : 0.0);
  if (tunables_.shm) {
    // 0 stands for the backend's own choice, which is also the maximum.
    const auto or_most = [](std::int64_t bytes, const Sizes& sizes) {
      return bytes == 0 ? 1.0 : sizes.of(bytes);
    };
    point.push_back(or_most(parameters.shm_small_bytes, kShmSmall));
    point.push_back(or_most(parameters.shm_part_bytes, kShmPart));
  }
  return point;
}

}  // namespace hora::collectives
