// A set of one rank: every collective is a copy. The smallest backend, and the first to read.
#include <cstring>

#include "collectives/backends/backend.h"
#include "collectives/kernels/kernels.h"

namespace hora::collectives {
namespace {

class SelfBackend final : public Backend {
 public:
  Progress execute(const Step& step, std::uint64_t*, ErrorText&) noexcept override {
    for (int i = 0; i < step.piece_count; ++i) run(step, step.pieces[i]);
    return Progress::kDone;
  }
  Progress poll(std::uint64_t, ErrorText&) noexcept override { return Progress::kDone; }
  void abort() noexcept override {}
  void destroy() noexcept override { delete this; }

 private:
  static void run(const Step& step, const Piece& piece) {
    const auto dtype = static_cast<hora_dtype>(step.dtype);
    // An alltoall may send fewer rows than it has.
    const std::int64_t count =
        step.operation == HORA_ALLTOALL ? step.receive_counts[0] : piece.count;
    const auto bytes = static_cast<std::size_t>(count) * dtype_bytes(dtype);
    if (bytes > 0 && piece.output != piece.input) std::memmove(piece.output, piece.input, bytes);
    apply_scale(piece.output, count, dtype, step.prescale, 1);
    apply_scale(piece.output, count, dtype, step.postscale, step.divisor);
  }
};

const char* version() noexcept { return ""; }
bool probe(const ProbeContext&, ErrorText&) noexcept { return true; }
Backend* create(const GroupContext&, ErrorText&) noexcept { return new SelfBackend; }

constexpr Capability row(hora_operation operation) {
  Capability capability;
  capability.operation = operation;
  capability.score = 1000;
  capability.alone = 1;
  return capability;
}

constexpr Capability kRows[] = {row(HORA_ALLREDUCE), row(HORA_ALLGATHER),     row(HORA_BROADCAST),
                                row(HORA_ALLTOALL),  row(HORA_REDUCESCATTER), row(HORA_BARRIER)};

constexpr BackendDescriptor kDescriptor = {
    kBorderVersion, sizeof(BackendDescriptor),      "self", "Self", version, probe,
    kRows,          sizeof kRows / sizeof kRows[0], create, nullptr};

}  // namespace

const BackendDescriptor* self_backend_descriptor() { return &kDescriptor; }

}  // namespace hora::collectives
