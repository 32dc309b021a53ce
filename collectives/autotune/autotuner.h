// SPDX-License-Identifier: Apache-2.0
// Measures how fast reductions run and decides which parameters to try next, and which to keep.
// [pure]: time comes in as an argument.
//
// A score is the number of bytes reduced per microsecond over some steps of the program; a sample
// is the median of several scores under the same parameters. One thread at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "collectives/autotune/bayes_search.h"
#include "collectives/autotune/parameters.h"
#include "rendezvous/base/time.h"

namespace hora::collectives {

struct AutotuneOptions {
  int warmup_samples = 3;     // samples at the start that do not count
  int steps_per_sample = 10;  // steps of the program for one score
  int most_samples = 20;
  double most_noise = 0.8;  // the largest share of the scores' variance that may be noise
};

class Autotuner {
 public:
  using TimePoint = Clock::time_point;
  struct Trial {
    Parameters parameters;
    double score = 0;  // bytes per microsecond
  };

  // At least one parameter must be free.
  Autotuner(const Parameters& start, Tunables tunables, AutotuneOptions options);
  Autotuner(const Autotuner&) = delete;
  Autotuner& operator=(const Autotuner&) = delete;

  // Reports that a tensor has been reduced. Returns the sample that it completes, if that counts.
  std::optional<Trial> ran(const std::string& name, std::int64_t bytes, TimePoint now);
  // The parameters to use from now on, once, if they differ from those before.
  std::optional<Parameters> take_change();
  // All ranks now use what take_change() returned: whatever runs from here on counts for it.
  void changed(TimePoint now);
  // The best trial once the search is over; after the last change there is nothing more to do.
  const std::optional<Trial>& result() const { return result_; }

 private:
  void begin_score(TimePoint now);
  std::optional<Trial> finish_sample();
  void decide();
  void finish_search(const Parameters& winner);
  std::size_t duel_samples() const;
  std::size_t search_samples() const;

  ParameterSpace space_;
  AutotuneOptions options_;
  BayesSearch search_;
  Parameters start_;
  Parameters current_;
  std::optional<Parameters> change_;
  std::optional<Trial> result_;
  std::vector<Trial> trials_;
  std::optional<Parameters> finalist_;  // measured against the start, alternately, at the end

  int warmup_left_;
  std::vector<double> scores_;
  std::optional<TimePoint> began_;
  std::int64_t bytes_ = 0;
  std::int64_t reductions_ = 0;
  std::unordered_map<std::string, int> seen_;  // how often each tensor ran since the last change
  int scored_ = 0;                             // scores since the last change
};

}  // namespace hora::collectives
