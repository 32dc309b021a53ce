// SPDX-License-Identifier: Apache-2.0
// Runs what has been agreed: responses with this rank's operations become a Step for a backend.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/autotune/parameters.h"
#include "collectives/backend.h"
#include "collectives/negotiation/request.h"
#include "collectives/runtime/host_stage.h"
#include "collectives/runtime/operation.h"
#include "collectives/runtime/process_set.h"
#include "collectives/runtime/wide_average.h"

namespace hora::collectives {

// "TCP_ALLREDUCE": what the timeline shows while the backend works.
std::string activity_name(std::string_view backend, hora_operation operation,
                          bool by_adasum = false);

// A step, and everything that it points to.
struct PreparedStep {
  Step step;
  std::vector<Piece> pieces;
  std::vector<std::int64_t> send_counts;
  std::vector<std::int64_t> receive_counts;
  std::vector<bool> stands_in;          // for each piece: this rank has joined
  std::vector<ResultBuffer> stand_ins;  // for those pieces, in host memory or on the device
  std::int64_t bytes = 0;               // the same on every rank
  bool by_adasum = false;
};

// One fused step of this rank, from what has been agreed to its results.
class RunningStep {
 public:
  enum class State {
    kReady,
    kUnderWay,     // to be looked after
    kDone,         // the operations hold their results
    kUnsupported,  // agreed on all ranks: no backend can do it. text() says why
    kBroken,       // the data plane failed: the world is unusable. text() says why
  };

  // The responses, all OK and alike but for name and shape, and the operation of this rank for
  // each: null where this rank has joined. The responses are needed until it is under way, set and
  // operations to the end.
  RunningStep(ProcessSet& set, const std::vector<const Response*>& responses,
              const std::vector<Operation*>& operations, const Parameters& parameters);
  RunningStep(RunningStep&&) = default;
  RunningStep& operator=(RunningStep&&) = delete;

  // How many steps may be under way once this one is; 1: it begins when no other one is.
  int most_under_way() const;
  // Blocks where the backend does; `activities` (may be null) is notified of each activity until
  // the end.
  State begin(Activities* activities);
  State look();

  // Names the tensors of GPUs that go through host memory although the user has not asked for what
  // needs it; empty: none do.
  const std::string& detour() const { return detour_; }
  State state() const { return state_; }
  const std::string& text() const { return text_; }
  bool own_failure() const { return own_failure_; }  // kBroken: it began in this rank
  // kBroken: the rank that no connection came about with; -1: none such.
  std::int32_t unreached() const { return unreached_; }
  std::string what() const;  // "allreduce 'x'": for people

 private:
  bool settle_memory(bool by_host);
  void settle_average();
  Progress execute(ErrorText& error);
  State follow(Progress progress, ErrorText& error);
  State end(State state, std::string text);

  PreparedStep prepared_;
  std::optional<HostStage> stage_;
  std::optional<WideAverage> average_;
  std::string detour_;
  const Request* agreed_;  // the first one's; null once it is under way
  std::string what_;       // from then on
  ProcessSet* set_;
  Backend* backend_ = nullptr;
  std::string backend_id_;
  std::uint64_t ticket_ = 0;
  State state_ = State::kReady;
  std::string text_;
  bool own_failure_ = false;
  std::int32_t unreached_ = -1;
};

}  // namespace hora::collectives
