// SPDX-License-Identifier: Apache-2.0
#include "collectives/autotune/bayes_search.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <utility>

namespace hora::collectives {

namespace {

// Candidates for a length scale, relative to the unit cube, and for the noise.
constexpr double kScales[] = {0.1, 0.2, 0.4, 0.8, 1.6, 3.2};
constexpr double kNoiseShares[] = {1, 0.25, 1.0 / 16, 1.0 / 64, 1.0 / 256};
// Keeps the matrix well away from singular where points coincide.
constexpr double kJitter = 1e-6;
constexpr int kRounds = 2;

}  // namespace

GaussianProcess::GaussianProcess(std::vector<Point> points, const std::vector<double>& values,
                                 double most_noise)
    : points_(std::move(points)), values_(values) {
  const auto count = static_cast<double>(values_.size());
  mean_ = std::accumulate(values_.begin(), values_.end(), 0.0) / count;
  double squares = 0;
  for (const double value : values_) squares += (value - mean_) * (value - mean_);
  // Equal values have no spread; 1 avoids a division by zero.
  spread_ = squares > 0 ? std::sqrt(squares / count) : 1;
  // Normalised, so that the candidates below suit values of any size.
  for (double& value : values_) value = (value - mean_) / spread_;

  // Start with smooth functions and all the noise that is allowed: a cautious model.
  scales_.assign(points_.front().size(), 0.4);
  noise_ = most_noise;
  double best = fit();
  // Optimise one number after the other: there are few, and the likelihood has no sharp peaks.
  const auto improve = [&](double& number, double candidate) {
    const double before = std::exchange(number, candidate);
    const double likelihood = fit();
    if (likelihood > best) {
      best = likelihood;
    } else {
      number = before;
    }
  };
  for (int round = 0; round < kRounds; ++round) {
    for (const double share : kNoiseShares) improve(noise_, most_noise * share);
    for (double& scale : scales_) {
      for (const double candidate : kScales) improve(scale, candidate);
    }
  }
  fit();
}

double GaussianProcess::covariance(const Point& a, const Point& b) const {
  double squares = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double distance = (a[i] - b[i]) / scales_[i];
    squares += distance * distance;
  }
  // Matern 5/2: smooth enough to extrapolate, but not infinitely smooth like a Gaussian.
  const double scaled = std::sqrt(5 * squares);
  return (1 + scaled + scaled * scaled / 3) * std::exp(-scaled);
}

double GaussianProcess::fit() {
  const std::size_t count = points_.size();
  factor_.assign(count * count, 0);
  const auto factor = [&](std::size_t row, std::size_t column) -> double& {
    return factor_[row * count + column];
  };
  double log_determinant = 0;
  for (std::size_t row = 0; row < count; ++row) {
    for (std::size_t column = 0; column <= row; ++column) {
      double rest = covariance(points_[row], points_[column]);
      if (row == column) rest += noise_ + kJitter;
      for (std::size_t i = 0; i < column; ++i) rest -= factor(row, i) * factor(column, i);
      // Rounding can make the rest slightly negative; the floor keeps the root real.
      factor(row, column) =
          row == column ? std::sqrt(std::max(rest, kJitter)) : rest / factor(column, column);
    }
    log_determinant += 2 * std::log(factor(row, row));
  }
  // Two triangular systems, forward and then backward, instead of an inverse.
  weights_ = solve(values_);
  for (std::size_t row = count; row-- > 0;) {  // the other triangle
    for (std::size_t i = row + 1; i < count; ++i) weights_[row] -= factor(i, row) * weights_[i];
    weights_[row] /= factor(row, row);
  }
  const double fitness = std::inner_product(values_.begin(), values_.end(), weights_.begin(), 0.0);
  return -0.5 *
         (fitness + log_determinant + static_cast<double>(count) * std::log(2 * std::numbers::pi));
}

// Solves the lower triangular system.
std::vector<double> GaussianProcess::solve(std::vector<double> right) const {
  const std::size_t count = points_.size();
  for (std::size_t row = 0; row < count; ++row) {
    for (std::size_t i = 0; i < row; ++i) right[row] -= factor_[row * count + i] * right[i];
    right[row] /= factor_[row * count + row];
  }
  return right;
}

GaussianProcess::Prediction GaussianProcess::at(const Point& point) const {
  // The covariances between the point and all measured ones.
  std::vector<double> towards;
  for (const Point& known : points_) towards.push_back(covariance(point, known));
  const double mean = std::inner_product(towards.begin(), towards.end(), weights_.begin(), 0.0);
  // The prior variance of normalised values, less what the measurements explain.
  double variance = 1;
  for (const double each : solve(std::move(towards))) variance -= each * each;
  return {mean_ + spread_ * mean, spread_ * std::sqrt(std::max(variance, 0.0))};
}

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

void BayesSearch::add_sample(double value) {
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
