// SPDX-License-Identifier: Apache-2.0
// A set of one rank: every collective is a copy. The smallest backend, and the first to read.
#include <new>

#include "collectives/backend.h"
#include "collectives/backends/blocking_backend.h"
#include "collectives/backends/fusion_buffer.h"
#include "collectives/backends/registry.h"
#include "collectives/kernels/kernels.h"

namespace hora::collectives {
namespace {

class SelfBackend final : public BlockingBackend<SelfBackend> {
 public:
  void abort() noexcept override {}

  bool run(const Step& step, ErrorText&) {
    for (int i = 0; i < step.piece_count; ++i) run(step, step.pieces[i]);
    return true;
  }

 private:
  static void run(const Step& step, const Piece& piece) {
    const auto dtype = static_cast<hora_dtype>(step.dtype);
    // An alltoall may send fewer rows than its input has.
    const std::int64_t count =
        step.operation == HORA_ALLTOALL ? step.receive_counts[0] : piece.count;
    copy_unless_same(piece.output, piece.input,
                     count * static_cast<std::int64_t>(dtype_bytes(dtype)));
    // Two steps, because each one rounds or truncates as it would among several ranks.
    apply_scale(piece.output, count, dtype, step.prescale, 1);
    apply_scale(piece.output, count, dtype, step.postscale, step.divisor);
  }
};

Backend* create(const GroupContext&, ErrorText& error) noexcept {
  Backend* const created = new (std::nothrow) SelfBackend;
  if (created == nullptr) error.set("not enough memory");
  return created;
}

// The highest score of all, but only for sets of one rank.
constexpr auto kRows = rows_for_all_operations({.score = 1000, .alone = 1});
constexpr BackendDescriptor kDescriptor =
    with_traits(backend_descriptor("self", "Self", kRows, create), kAnyThread | kFixedOrder);

}  // namespace

const BackendDescriptor* self_backend_descriptor() { return &kDescriptor; }

}  // namespace hora::collectives
