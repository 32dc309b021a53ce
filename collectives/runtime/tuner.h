// SPDX-License-Identifier: Apache-2.0
// The parameters of the runtime, the same on all ranks, and on rank 0 the search for better ones:
// rank 0 measures and decides, a response tells all ranks, and each changes its parameters at that
// place of the list.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/autotune/parameters.h"
#include "collectives/negotiation/request.h"
#include "collectives/runtime/process_set.h"
#include "collectives/runtime/tuning.h"
#include "collectives/runtime/world.h"

namespace hora::collectives {

class Tuner {
 public:
  // What is measured of an operation.
  struct Reduced {
    std::string name;
    std::int64_t bytes;
  };

  // With the parameters that all have agreed on. On rank 0 the search begins, when it is asked for
  // and there is something to choose.
  void start(const World& world, const ProcessSet& set);

  const Parameters& parameters() const { return parameters_; }
  bool searching() const { return tuning_.has_value(); }

  // What of a step is to be measured, and that it has run.
  static std::vector<Reduced> reductions_of(const ProcessSet& set,
                                            const std::vector<const Response*>& responses);
  void ran(std::span<const Reduced> reductions, Clock::time_point now);

  // Rank 0: what all are to change to, with what they are told next. Null: nothing.
  std::unique_ptr<Response> take_change();
  // Every rank. False: it makes no sense.
  bool change(const Response& response, Clock::time_point now);

 private:
  Parameters parameters_;
  std::optional<Tuning> tuning_;  // rank 0, while it searches
};

}  // namespace hora::collectives
