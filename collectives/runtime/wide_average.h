// SPDX-License-Identifier: Apache-2.0
// Averages of 16-bit values in a wider type.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "collectives/backend.h"
#include "collectives/backends/fusion_buffer.h"
#include "collectives/negotiation/response_cache.h"
#include "collectives/runtime/operation.h"
#include "collectives/runtime/process_set.h"

namespace hora::collectives {

// What all ranks of a set have agreed on and is to be run next, as this rank sees it.

struct AgreedOp {
  const Response* response = nullptr;
  std::unique_ptr<Response> made;   // unless the response cache has it
  CacheId number = 0;               // its short name; 0: in full
  std::uint64_t hash = 0;           // of its name
  const Operation* mine = nullptr;  // this rank's, pending; null when it takes no part
};

// This rank's operation is pending no more. Null when it takes no part.
inline OperationPtr take_pending(ProcessSet& set, const AgreedOp& each) {
  if (each.response->agreed.action == Action::kJoin) return std::exchange(set.joining, nullptr);
  return each.mine == nullptr ? nullptr : set.pending.take(*each.mine);
}

// Averages of numbers whose sum their type cannot hold: the ranks add in a wider type and divide
// before they return to their own, so the average of representable numbers is right.
// Integers always travel wider (64-bit ones as two halves), and so do the rows of a reducescatter.
// An allreduce of 16-bit floats, whose bytes matter, is tried as it is: all ranks see the same
// result, and if it is not finite they run the step once more, in float32.

class WideAverage {
 public:
  // Whether a step that divides needs it; `wide` says that the backend adds 16-bit floats in
  // float32.
  static bool is_needed(const Step& step, bool wide);
  // The type in which such numbers are added, and how many of its elements stand for one.
  static hora_dtype wide_dtype(hora_dtype dtype);
  static int elements_per_number(hora_dtype dtype);

  // `kept` holds inputs that the step overwrites; index and size are those of this rank and its
  // set.
  WideAverage(FusionBuffer& kept, int set_index, int set_size)
      : kept_(&kept), set_index_(set_index), set_size_(set_size) {}

  // Before the step runs, its tensors being in host memory: makes it wide, or prepares for that.
  void prepare(Step& step);
  // The step has run. True: it has become wide and is to run once more. False: the results are in
  // their outputs.
  bool runs_again(Step& step);

 private:
  void widen(Step& step);
  void narrow(const Step& step) const;
  bool all_finite() const;
  std::int64_t given_back(const Piece& piece) const;

  FusionBuffer* kept_;
  int set_index_;
  int set_size_;
  Step plain_;  // as it was
  std::vector<Piece> pieces_;
  bool is_wide_ = false;
  std::vector<char> sent_;
  std::vector<char> received_;  // of a reducescatter
  Piece wide_;
  std::vector<std::int64_t> receive_counts_;
};

}  // namespace hora::collectives
