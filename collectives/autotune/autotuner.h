// Watches how fast reductions go and decides which parameters to try next, and which to keep.
// [pure]: time comes in as an argument.
//
// A score is the bytes reduced per microsecond over some steps of the program, a sample the median
// of several scores under the same parameters.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "collectives/autotune/bayes_search.h"
#include "collectives/autotune/parameters.h"

namespace hora::collectives {

struct AutotuneOptions {
  int warmup_samples = 3;     // that do not count
  int steps_per_sample = 10;  // of the program, for one score
  int most_samples = 20;
  double most_noise = 0.8;  // share of the scores' variance
};

class Autotuner {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  struct Trial {
    Parameters parameters;
    double score = 0;  // bytes per microsecond
  };

  // At least one parameter is free.
  Autotuner(const Parameters& start, Freedom freedom, AutotuneOptions options);
  Autotuner(const Autotuner&) = delete;
  Autotuner& operator=(const Autotuner&) = delete;

  // A tensor has been reduced. When it completes a sample that counts, that one.
  std::optional<Trial> ran(const std::string& name, std::int64_t bytes, TimePoint now);
  // The parameters to use from now on, where they are others than before; once.
  std::optional<Parameters> take_change();
  // All ranks use what take_change() answered: what runs from here on counts for it.
  void changed(TimePoint now);
  // The search is over and its best found; after the last change there is nothing more to do.
  const std::optional<Trial>& result() const { return result_; }

 private:
  void begin_score(TimePoint now);
  std::optional<Trial> finish_sample();
  void decide();
  void finish_search(const Parameters& winner);
  std::size_t search_samples() const;

  ParameterSpace space_;
  AutotuneOptions options_;
  BayesSearch search_;
  Parameters start_;
  Parameters current_;
  std::optional<Parameters> change_;
  std::optional<Trial> result_;
  std::vector<Trial> trials_;
  std::optional<Parameters> finalist_;  // measured against the start, in turns, at the end

  int warmup_left_;
  std::vector<double> scores_;
  std::optional<TimePoint> began_;
  std::int64_t bytes_ = 0;
  std::int64_t reductions_ = 0;
  std::unordered_map<std::string, int> seen_;  // how often, since the last change
  int scored_ = 0;                             // scores since then
};

}  // namespace hora::collectives
