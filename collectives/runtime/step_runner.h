// SPDX-License-Identifier: Apache-2.0
// Runs what has been agreed: one step after the other, or several under way at once where their
// backend lets them (NCCL, on streams of their own).
//
// Every rank begins the steps that it has a part in in the order in which they were agreed, which
// is the same on all. A step that waits for room waits for earlier ones alone, so of all steps that
// have not ended anywhere the first has been begun by all its ranks, and ends.
//
// Belongs to the thread that drives the runtime.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "collectives/runtime/backend_pool.h"
#include "collectives/runtime/executor.h"
#include "collectives/runtime/request_queue.h"
#include "collectives/runtime/shutdown.h"
#include "collectives/runtime/stall_monitor.h"
#include "collectives/runtime/tuner.h"
#include "collectives/runtime/wide_average.h"
#include "collectives/trace/observer.h"

namespace hora::collectives {

class StepRunner {
 public:
  // The inputs of a step, and the observers of its result.
  struct Links {
    BackendPool& pool;
    RequestQueue& queue;  // where finished operations leave their names
    Observer& observer;
    Tuner& tuner;
    StallMonitor& stalls;
    Shutdown& shutdown;
  };
  explicit StepRunner(const Links& links) : links_(links) {}

  // Begins the operations of one step, all of this set, and finishes them if they end at once.
  void run(ProcessSet& set, const std::vector<const AgreedOp*>& step);
  // As this; of this rank's operations, one for each response, null is one of which it has joined.
  void run(ProcessSet& set, const std::vector<const Response*>& responses,
           std::vector<OperationPtr> owned);
  bool something_under_way() const { return under_way_count_ > 0; }
  // Something is under way: shows the watchdog where this rank waits.
  void update_watchdog();
  // Waits until fewer steps than `most` are under way. False: the world has ended meanwhile.
  bool wait_for_steps(int most);
  // Finishes those that have ended. Answers whether one has. A look takes a moment, so that this
  // may be done again and again.
  bool look();
  // The first that no step has.
  int free_place() const;
  // The world has ended, and the backends know: what is under way ends soon, and its operations are
  // pending again.
  void abandon();

 private:
  struct UnderWay {
    std::uint64_t number;  // counts all steps from 1
    ProcessSet* set;
    std::vector<OperationPtr> operations;  // null where this rank has joined
    RunningStep run;
    std::vector<Tuner::Reduced> reductions;  // to be measured
  };

  void end(int place, UnderWay& step);
  static void give_back(ProcessSet& set, std::vector<OperationPtr>& operations);

  Links links_;
  std::vector<std::unique_ptr<UnderWay>> under_way_;  // by place; null: free
  int under_way_count_ = 0;
  std::uint64_t begun_ = 0;
  std::string title_;  // of the last step; kept so that its memory is used again
};

}  // namespace hora::collectives
