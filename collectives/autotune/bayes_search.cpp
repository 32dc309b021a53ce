// SPDX-License-Identifier: Apache-2.0
#include "collectives/autotune/bayes_search.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

namespace hora::collectives {

namespace {

constexpr std::size_t kSpreadPoints = 5;  // including the start
constexpr std::uint64_t kCandidates = 400;
constexpr std::uint64_t kNeighbours = 100;  // around the best point so far
// How far a neighbour lies from the best point, at most, in each dimension.
constexpr double kReach = 0.15;
// How much better than the best a point has to be, as a share of the range of the values: without a
// margin the search keeps digging where it has already found something.
constexpr double kMargin = 0.01;
// One base of Halton's sequence per dimension.
constexpr std::uint64_t kPrimes[] = {2, 3, 5, 7, 11, 13};

// A term of Halton's sequence, whose numbers fill 0..1 evenly: the digits of `number` in `base`,
// mirrored at the point.
double halton(std::uint64_t number, std::uint64_t base) {
  double result = 0;
  double share = 1;
  for (; number > 0; number /= base) {
    share /= static_cast<double>(base);
    result += share * static_cast<double>(number % base);
  }
  return result;
}

}  // namespace

BayesSearch::BayesSearch(const Point& start, Snap snap, double most_noise)
    : snap_(std::move(snap)), most_noise_(most_noise), next_(snap_(start)) {}

void BayesSearch::tell(double value) {
  points_.push_back(next_);
  values_.push_back(value);
  next_ = points_.size() < kSpreadPoints ? snap_(spread(points_.size())) : propose();
}

Point BayesSearch::spread(std::uint64_t number) const {
  Point point;
  for (std::size_t i = 0; i < next_.size(); ++i) {
    point.push_back(halton(number, kPrimes[i % std::size(kPrimes)]));
  }
  return point;
}

double BayesSearch::expected_improvement(const GaussianProcess& process, const Point& point,
                                         double best) const {
  const auto [mean, deviation] = process.at(point);
  // Where the process is certain, the improvement is a plain difference.
  if (deviation <= 0) return std::max(mean - best, 0.0);
  // The expectation of max(0, value - best) for a normally distributed value.
  const double z = (mean - best) / deviation;
  const double density = std::exp(-z * z / 2) / std::sqrt(2 * std::numbers::pi);
  const double below = std::erfc(-z / std::numbers::sqrt2) / 2;
  return (mean - best) * below + deviation * density;
}

Point BayesSearch::propose() const {
  const GaussianProcess process(points_, values_, most_noise_);
  // The process's means, not the measured values: a lucky measurement must not set the goal.
  double best = -HUGE_VAL;
  double lowest = HUGE_VAL;
  Point best_point = points_.front();
  for (const Point& point : points_) {
    const double mean = process.at(point).mean;
    lowest = std::min(lowest, mean);
    if (mean > best) {
      best = mean;
      best_point = point;
    }
  }
  const double goal = best + kMargin * (best - lowest);
  Point chosen = best_point;
  double most = -1;
  const auto consider = [&](const Point& wanted) {
    Point point = snap_(wanted);
    const double improvement = expected_improvement(process, point, goal);
    // The first of equals, which keeps the search deterministic.
    if (improvement <= most) return;
    most = improvement;
    chosen = std::move(point);
  };
  // Candidates everywhere find new regions; those around the best refine it.
  for (std::uint64_t i = 1; i <= kCandidates; ++i) consider(spread(i));
  for (std::uint64_t i = 1; i <= kNeighbours; ++i) {
    Point point = spread(i);
    for (std::size_t d = 0; d < point.size(); ++d) {
      point[d] = std::clamp(best_point[d] + kReach * (2 * point[d] - 1), 0.0, 1.0);
    }
    consider(point);
  }
  return chosen;
}

Point BayesSearch::best() const {
  if (points_.empty()) return next_;
  const GaussianProcess process(points_, values_, most_noise_);
  const auto mean = [&](const Point& point) { return process.at(point).mean; };
  return *std::max_element(points_.begin(), points_.end(),
                           [&](const Point& a, const Point& b) { return mean(a) < mean(b); });
}

}  // namespace hora::collectives
