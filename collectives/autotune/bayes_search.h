// Where to look next for the largest value of a function that is expensive and noisy.  [pure]
//
// The start first, then a few points spread evenly, then where a Gaussian process expects the
// greatest improvement. The same answers give the same questions.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "collectives/autotune/gaussian_process.h"

namespace hora::collectives {

class BayesSearch {
 public:
  // To a point that can be had: where a dimension has steps.
  using Snap = std::function<Point(const Point&)>;

  BayesSearch(Point start, Snap snap, double most_noise);

  // The same until told.
  const Point& next() const { return next_; }
  // The value at next().
  void tell(double value);
  // Of those told, by what the process makes of all; the start before anything was told.
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
