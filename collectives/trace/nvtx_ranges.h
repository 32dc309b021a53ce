// SPDX-License-Identifier: Apache-2.0
// Ranges for NVIDIA's tools (NVTX): one for each operation on a tensor, from its request until its
// result is there. The tool shows them next to the kernels of the program. Calls come from the
// thread that drives the engine, as an Observer's do.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "collectives/negotiation/request.h"

namespace hora::collectives {

class NvtxRanges {
 public:
  // Null: no tool listens, or this build knows none.
  static std::unique_ptr<NvtxRanges> open();
  ~NvtxRanges() { end_all(); }
  NvtxRanges(const NvtxRanges&) = delete;
  NvtxRanges& operator=(const NvtxRanges&) = delete;

  // With its name: "HorovodAllreduce allreduce.grad.3" rather than "HorovodAllreduce".
  void taken(const Request& request, bool with_name);
  // Operations that ended without a step: the ranks disagreed.
  void agreed(std::span<const Response* const> responses);
  void step_begins(int place, std::span<const Response* const> step);
  void step_ends(int place);
  void end_all();

 private:
  using Id = std::uint64_t;
  using Key = std::pair<std::int32_t, std::string>;  // the set, and the name

  explicit NvtxRanges(void* domain) : domain_(domain) {}
  Id take_open(const Request& agreed);
  void end(Id range);

  void* domain_;  // of the tool: its name for us
  std::map<Key, Id> open_;
  std::vector<std::vector<Id>> running_;  // by place
};

}  // namespace hora::collectives
