// SPDX-License-Identifier: Apache-2.0
// Collectives among the ranks of one host, through memory that they share.
//
// Each rank has a ring of chunks for what it gives the others; what they have reduced of it comes
// back in the same place. The rings are small enough to stay in the caches, so memory sees each
// input once and each output once. While the ranks reduce one chunk they copy in the next.
#include <algorithm>
#include <exception>
#include <memory>

#include "collectives/backend.h"
#include "collectives/backends/blocking_backend.h"
#include "collectives/backends/registry.h"
#include "collectives/backends/shm/nodes.h"
#include "collectives/backends/shm/reductions.h"
#include "collectives/backends/shm/rings.h"

namespace hora::collectives {
namespace {

class ShmBackend final : public BlockingBackend<ShmBackend> {
 public:
  // Collective. On null `error` says why.
  static Backend* open(const GroupContext& group, ErrorText& error) {
    auto self = std::make_unique<ShmBackend>();
    if (!self->rings_.open(group, error)) return nullptr;
    if (!self->rings_.look_at_nodes(group, shm::own_node(), error)) return nullptr;
    return self.release();
  }

  void abort() noexcept override { rings_.abort(); }

  bool run(const Step& step, ErrorText& error) {
    // The only way for the algorithms below to fail; others overwrite it.
    error.set("the job is ending");
    if (rings_.aborted()) return false;
    work_.assign(step);
    return run_operation(*this, step, error);
  }

  bool allreduce(const Step& step, ErrorText&) {
    // One hand-over for small tensors, the rings for the rest.
    if (work_.count() * work_.width() <= small_bytes(step)) {
      return reductions_.allreduce_small(work_);
    }
    return reductions_.allreduce_in_turns(work_, part_bytes(step));
  }
  bool allgather(const Step&, ErrorText&) { return shm::allgather(rings_, work_); }
  bool broadcast(const Step&, ErrorText&) { return shm::broadcast(rings_, work_); }
  bool alltoall(const Step&, ErrorText&) { return shm::alltoall(rings_, work_); }
  bool reducescatter(const Step&, ErrorText&) { return reductions_.reducescatter(work_); }
  bool barrier(const Step&, ErrorText&) { return rings_.barrier(); }

 private:
  // The step's requested size, within the available memory.
  std::int64_t small_bytes(const Step& step) const {
    return step.small_bytes > 0 ? std::min(step.small_bytes, rings_.small_bytes())
                                : rings_.small_bytes();
  }
  std::int64_t part_bytes(const Step& step) const {
    if (step.part_bytes <= 0) return rings_.part_bytes();
    return std::clamp(step.part_bytes / shm::kPageBytes * shm::kPageBytes, shm::kPageBytes,
                      rings_.part_bytes());
  }

  shm::Rings rings_;
  shm::Reductions reductions_{rings_};
  shm::Work work_;  // the running operation
};

Backend* create(const GroupContext& group, ErrorText& error) noexcept {
  try {
    return ShmBackend::open(group, error);
  } catch (const std::exception& failure) {
    error.set("%s", failure.what());
    return nullptr;
  }
}

constexpr auto kRows = rows_for_all_operations({.across_hosts = 0, .score = 200});
constexpr BackendDescriptor kDescriptor = [] {
  BackendDescriptor descriptor = backend_descriptor("shm", "Shared memory", kRows, create);
  descriptor.traits = kAnyThread | kFixedOrder | kUsesSizeHints | kWideAverages;
  return descriptor;
}();

}  // namespace

const BackendDescriptor* shm_backend_descriptor() { return &kDescriptor; }

}  // namespace hora::collectives
