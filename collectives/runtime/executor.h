// Runs what has been agreed: verdicts with this rank's operations become a Step for a backend.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "collectives/autotune/parameters.h"
#include "collectives/negotiation/request.h"
#include "collectives/runtime/process_set.h"

namespace hora::collectives {

struct Execution {
  enum class Kind {
    kDone,         // the operations hold their results
    kUnsupported,  // agreed on all ranks: no backend can do it. `text` says why
    kBroken,       // the data plane failed: the world is unusable
  };
  Kind kind = Kind::kDone;
  std::string text;
};

// "GLOO_ALLREDUCE": what the timeline shows while the backend works.
std::string activity_name(std::string_view backend, hora_operation operation,
                          bool by_adasum = false);

// The verdicts of one fused step, all OK and alike but for name and shape, and the operation of
// this rank for each: null where this rank has joined. Blocks until done; `activities` (may be
// null) is told what is being done meanwhile.
Execution execute(ProcessSet& set, const std::vector<const Verdict*>& verdicts,
                  const std::vector<Operation*>& operations, const Parameters& parameters,
                  Activities* activities);

}  // namespace hora::collectives
