// SPDX-License-Identifier: Apache-2.0
// The parameters that may change while a job runs, at the same response on every rank.  [pure]
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "collectives/autotune/bayes_search.h"

namespace hora::collectives {

struct Parameters {
  std::int64_t fusion_threshold_bytes = 128 << 20;
  std::int64_t cycle_time_us = 0;  // how long a ready tensor may wait for others to join its step
  bool hierarchical_allreduce = true;  // where the set has both ways
  // For the shm backend; 0: as it thinks best.
  std::int64_t shm_small_bytes = 0;  // up to this size every rank reduces everything
  std::int64_t shm_part_bytes = 0;   // above it: how much a rank reduces at a time

  friend bool operator==(const Parameters&, const Parameters&) = default;
};

std::vector<std::int64_t> to_numbers(const Parameters& parameters);
// Returns nothing for numbers that to_numbers() cannot have produced.
std::optional<Parameters> from_numbers(const std::vector<std::int64_t>& numbers);

// Which parameters the search may change.
struct Tunables {
  bool fusion = false;
  bool cycle_time = false;
  bool hierarchical = false;
  bool shm = false;

  bool any() const { return fusion || cycle_time || hierarchical || shm; }
};

// The free parameters as a point of the unit cube, sizes on a logarithmic scale. Fixed parameters
// keep their values.
class ParameterSpace {
 public:
  ParameterSpace(Parameters fixed, Tunables tunables) : fixed_(fixed), tunables_(tunables) {}

  Parameters at(const Point& point) const;
  Point point_of(const Parameters& parameters) const;

 private:
  Parameters fixed_;
  Tunables tunables_;
};

}  // namespace hora::collectives
