// SPDX-License-Identifier: Apache-2.0
// Autotuning: measures steps and agrees on new parameters.
#pragma once

#include <cstdint>
#include <fstream>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/autotune/autotuner.h"
#include "collectives/autotune/parameters.h"
#include "collectives/negotiation/request.h"
#include "collectives/runtime/process_set.h"
#include "collectives/runtime/world.h"

namespace hora::collectives {

// An autotuner with its log: rank 0's, while it searches.

// The columns of a line of the log besides the parameters.
struct TuningInputs {
  bool hierarchical_allgather = false;
  bool composed = false;  // the world can do hierarchical allreduces
  bool cache_enabled = false;
};

class Tuning {
 public:
  Tuning(const Parameters& start, Tunables tunables, AutotuneOptions options)
      : tuner_(start, tunables, options) {}

  // Created again; empty: none. One that cannot be written is reported in the log of the library,
  // and the search goes on.
  void open_log(const std::string& path, TuningInputs inputs);

  void ran(const std::string& name, std::int64_t bytes, Autotuner::TimePoint now);
  std::optional<Parameters> take_change() { return tuner_.take_change(); }
  void changed(Autotuner::TimePoint now) { tuner_.changed(now); }
  bool finished() const { return tuner_.result().has_value(); }

 private:
  void log(const Autotuner::Trial& trial);
  void lose_log();

  Autotuner tuner_;
  TuningInputs inputs_;
  std::string path_;  // of the log
  std::ofstream file_;
};

// The parameters of the runtime, the same on all ranks, and on rank 0 the search for better ones:
// rank 0 measures and decides, a response carries them to all ranks, and each changes its
// parameters at that index of the list.

class Tuner {
 public:
  // The measurement of an operation.
  struct Reduced {
    std::string name;
    std::int64_t bytes;
  };

  // With the parameters that all have agreed on. On rank 0 the search begins, if it is requested
  // and there is something to choose.
  void start(const World& world, const ProcessSet& set);

  const Parameters& parameters() const { return parameters_; }
  bool searching() const { return tuning_.has_value(); }

  // What of a step is to be measured, and that it has run.
  static std::vector<Reduced> reductions_of(const ProcessSet& set,
                                            const std::vector<const Response*>& responses);
  void ran(std::span<const Reduced> reductions, Clock::time_point now);

  // Rank 0: the parameters that all are to change to, with the next response. Null: nothing.
  std::unique_ptr<Response> take_change();
  // Every rank. False: it makes no sense.
  bool change(const Response& response, Clock::time_point now);

 private:
  Parameters parameters_;
  std::optional<Tuning> tuning_;  // rank 0, while it searches
};

}  // namespace hora::collectives
