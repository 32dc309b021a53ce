// SPDX-License-Identifier: Apache-2.0
// Proposes where to look next for the maximum of an expensive and noisy function.  [pure]
//
// First the start, then a few evenly spread points, then where a Gaussian process expects the
// greatest improvement. Deterministic: the same answers give the same questions.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "collectives/autotune/gaussian_process.h"

namespace hora::collectives {

class BayesSearch {
 public:
  // Moves a point to one that is possible, where a dimension has steps.
  using Snap = std::function<Point(const Point&)>;

  BayesSearch(const Point& start, Snap snap, double most_noise);

  // The next point to try; it stays the same until tell().
  const Point& next() const { return next_; }
  // Reports the value at next().
  void tell(double value);
  // The best of the points so far, by the process's estimate of all; the start before any tell().
  Point best() const;
  std::size_t told() const { return values_.size(); }

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
