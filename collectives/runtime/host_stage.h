// SPDX-License-Identifier: Apache-2.0
// Copies of device tensors in host memory, for backends that need them there.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "collectives/backend.h"
#include "rendezvous/base/result.h"

namespace hora::collectives {

// The memory of GPUs. libhora itself links no GPU library: the backend that does knows it.

// What knows the memory of GPUs; null: nothing does.
const BackendDescriptor* device_memory();

// Whether tensors can lie on this device, or why not. Any thread may ask; what was found to work is
// remembered.
Status check_device(std::int32_t device);

// A step on tensors of a GPU that no backend takes there: it works on copies of them in host
// memory.

struct ReleaseOnHost {
  const BackendDescriptor* copier = nullptr;
  std::int32_t device = HORA_CPU_DEVICE;
  void operator()(void* memory) const { copier->release_on_host(device, memory); }
};

class HostStage {
 public:
  // `copier` knows the device; index and size are those of this rank and its set in the step.
  HostStage(const BackendDescriptor& copier, int set_index, int set_size)
      : copier_(&copier), set_index_(set_index), set_size_(set_size) {}

  // Waits for the inputs, copies them, and makes the step one on the copies. Its pieces are
  // `pieces`; those whose `is_here` is true lie in host memory already (stand-ins of a rank that
  // has joined). Blocks. False: `error` says why.
  bool bring(Step& step, std::vector<Piece>& pieces, const std::vector<bool>& is_here,
             ErrorText& error);
  // The step is done: copies its results to where they belong. Blocks.
  bool take_back(const Step& step, ErrorText& error);

 private:
  std::int64_t received(const Step& step, const Piece& piece) const;

  const BackendDescriptor* copier_;
  int set_index_;
  int set_size_;
  std::int32_t device_ = HORA_CPU_DEVICE;
  std::unique_ptr<void, ReleaseOnHost> memory_;  // of all copies
  std::vector<HostCopy> results_;
};

}  // namespace hora::collectives
