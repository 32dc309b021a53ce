// SPDX-License-Identifier: Apache-2.0
// Bayesian optimization over the unit cube, by a Gaussian process.  [pure]
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace hora::collectives {

// Regression by a Gaussian process: what a function may be where it has not been measured, and how
// certain that is.
// Matern 5/2 covariance with a length scale for each dimension. Length scales and noise are those
// that make the values most likely. Immutable after construction.

using Point = std::vector<double>;  // each number from 0 to 1

class GaussianProcess {
 public:
  // Needs at least one point and as many values. `most_noise` is the largest share of the values'
  // variance that may be noise, 0 to 1.
  GaussianProcess(std::vector<Point> points, const std::vector<double>& values, double most_noise);

  struct Prediction {
    double mean = 0;
    double deviation = 0;  // standard deviation of the function, without a measurement's noise
  };
  Prediction at(const Point& point) const;

  const std::vector<double>& length_scales() const { return scales_; }
  double noise() const { return noise_; }  // share of the variance

 private:
  double covariance(const Point& a, const Point& b) const;
  double fit();  // returns the logarithm of the likelihood
  std::vector<double> solve(std::vector<double> right) const;

  std::vector<Point> points_;
  std::vector<double> values_;  // mean 0, variance 1
  double mean_ = 0;
  double spread_ = 1;
  std::vector<double> scales_;
  double noise_ = 0;
  std::vector<double> factor_;   // Cholesky factor: lower triangle by rows
  std::vector<double> weights_;  // inverse covariance times values
};

// Proposes where to look next for the maximum of an expensive and noisy function.
// First the start, then a few evenly spread points, then where a Gaussian process expects the
// greatest improvement. Deterministic: the same answers give the same questions.

class BayesSearch {
 public:
  // Moves a point to one that is possible, where a dimension has steps.
  using Snap = std::function<Point(const Point&)>;

  BayesSearch(const Point& start, Snap snap, double most_noise);

  // The next point to try; it stays the same until tell().
  const Point& next() const { return next_; }
  // Reports the value at next().
  void add_sample(double value);
  // The best of the points so far, by the process's estimate of all; the start before any tell().
  Point best() const;
  std::size_t samples() const { return values_.size(); }

 private:
  Point propose() const;
  Point spread(std::uint64_t number) const;
  double expected_improvement(const GaussianProcess& process, const Point& point,
                              double best) const;

  Snap snap_;
  double most_noise_;
  std::vector<Point> points_;
  std::vector<double> values_;
  Point next_;
};

}  // namespace hora::collectives
