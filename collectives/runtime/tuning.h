// SPDX-License-Identifier: Apache-2.0
// An autotuner with its log: rank 0's, while it searches.
#pragma once

#include <fstream>
#include <string>

#include "collectives/autotune/autotuner.h"

namespace hora::collectives {

// What a line of the log says besides the parameters.
struct TuningInputs {
  bool hierarchical_allgather = false;
  bool composed = false;  // the world can do hierarchical allreduces
  bool cache_enabled = false;
};

class Tuning {
 public:
  Tuning(const Parameters& start, Freedom freedom, AutotuneOptions options)
      : tuner_(start, freedom, options) {}

  // Made anew; empty: none. One that cannot be written is told in the log of the library, and the
  // search goes on.
  void open_log(const std::string& path, TuningInputs inputs);

  void ran(const std::string& name, std::int64_t bytes, Autotuner::TimePoint now);
  std::optional<Parameters> take_change() { return tuner_.take_change(); }
  void changed(Autotuner::TimePoint now) { tuner_.changed(now); }
  bool finished() const { return tuner_.result().has_value(); }

 private:
  void log(const Autotuner::Trial& trial);

  Autotuner tuner_;
  TuningInputs inputs_;
  std::ofstream file_;
};

}  // namespace hora::collectives
