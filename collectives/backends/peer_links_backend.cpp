// SPDX-License-Identifier: Apache-2.0
// The algorithms work in place on one stretch of memory: each operation first puts its input where
// its output belongs, or packs several tensors, and scales before and after.
#include "collectives/backends/peer_links_backend.h"

#include <numeric>

#include "collectives/backends/blocking_backend.h"
#include "collectives/backends/fusion_buffer.h"
#include "collectives/kernels/kernels.h"

namespace hora::collectives {

namespace {

class PeerLinksBackend final : public BlockingBackend<PeerLinksBackend> {
 public:
  PeerLinksBackend(PeerLinks& links, std::vector<std::int32_t> ranks, int index, std::int32_t set,
                   PointToPoint::Options options)
      : links_(links),
        algorithms_(links, std::move(ranks), index, static_cast<std::uint32_t>(set), options) {}

  void abort() noexcept override { links_.abort(); }

  bool run(const Step& step, ErrorText& error) {
    try {
      return run_operation(*this, step, error);
    } catch (...) {
      // The exception has skipped the waits: end the transfers before their memory goes.
      algorithms_.give_up();
      throw;
    }
  }

  bool allreduce(const Step& step, ErrorText& error) {
    // A single tensor is reduced where it lies, which saves the packing.
    if (step.piece_count == 1) {
      const Piece& piece = step.pieces[0];
      copy_unless_same(piece.output, piece.input, piece.count * width(step));
      return reduce(piece, step, error);
    }
    // Several tensors travel as one message sequence.
    const Piece packed = buffer_.pack(step, width(step));
    if (!reduce(packed, step, error)) return false;
    buffer_.unpack(step, width(step));
    return true;
  }

  bool allgather(const Step& step, ErrorText& error) {
    const Piece& piece = step.pieces[0];
    std::vector<std::int64_t> bytes = in_bytes(step.receive_counts, step);
    // The algorithm expects this rank's rows in position in the output.
    const std::int64_t before = std::accumulate(bytes.begin(), bytes.begin() + index(), INT64_C(0));
    copy_unless_same(static_cast<char*>(piece.output) + before, piece.input,
                     piece.count * width(step));
    return algorithms_.allgather(piece.output, bytes.data(), error);
  }

  bool broadcast(const Step& step, ErrorText& error) {
    const Piece& piece = step.pieces[0];
    const std::int64_t bytes = piece.count * width(step);
    // The other ranks receive into their outputs; only the root has an input.
    if (index() == step.root) copy_unless_same(piece.output, piece.input, bytes);
    return algorithms_.broadcast(piece.output, bytes, step.root, error);
  }

  bool alltoall(const Step& step, ErrorText& error) {
    const Piece& piece = step.pieces[0];
    const auto send = in_bytes(step.send_counts, step);
    const auto receive = in_bytes(step.receive_counts, step);
    return algorithms_.alltoall(piece.input, send.data(), piece.output, receive.data(), error);
  }

  bool reducescatter(const Step& step, ErrorText& error) {
    const Piece& piece = step.pieces[0];
    const auto dtype = static_cast<hora_dtype>(step.dtype);
    // The reduction overwrites its memory, and the caller's input must stay as it is.
    char* const all = buffer_.room(piece.count * width(step));
    copy_unless_same(all, piece.input, piece.count * width(step));
    apply_scale(all, piece.count, dtype, step.prescale, 1);
    if (!algorithms_.reduce_scatter(all, step.receive_counts, dtype,
                                    static_cast<hora_reduce_op>(step.reduce_op), error)) {
      return false;
    }
    const std::int64_t before =
        std::accumulate(step.receive_counts, step.receive_counts + index(), INT64_C(0));
    const std::int64_t mine = step.receive_counts[index()];
    copy_unless_same(piece.output, all + before * width(step), mine * width(step));
    apply_scale(piece.output, mine, dtype, step.postscale, step.divisor);
    return true;
  }

  bool barrier(const Step&, ErrorText& error) { return algorithms_.barrier(error); }

 private:
  // Bytes of one element.
  static std::int64_t width(const Step& step) {
    return static_cast<std::int64_t>(dtype_bytes(static_cast<hora_dtype>(step.dtype)));
  }

  // Reduces the piece's output in place, with the scaling around it.
  bool reduce(const Piece& piece, const Step& step, ErrorText& error) {
    const auto dtype = static_cast<hora_dtype>(step.dtype);
    // The prescale applies to each rank's input, the rest to the result.
    apply_scale(piece.output, piece.count, dtype, step.prescale, 1);
    if (!algorithms_.allreduce(piece.output, piece.count, dtype,
                               static_cast<hora_reduce_op>(step.reduce_op), error)) {
      return false;
    }
    apply_scale(piece.output, piece.count, dtype, step.postscale, step.divisor);
    return true;
  }

  int index() const { return algorithms_.index(); }

  // Movements need no dtype: the algorithms count bytes.
  std::vector<std::int64_t> in_bytes(const std::int64_t* counts, const Step& step) const {
    std::vector<std::int64_t> bytes(counts, counts + algorithms_.size());
    for (std::int64_t& each : bytes) each *= width(step);
    return bytes;
  }

  PeerLinks& links_;
  PointToPoint algorithms_;
  FusionBuffer buffer_;
};

}  // namespace

Backend* make_peer_links_backend(PeerLinks& links, std::vector<std::int32_t> ranks, int index,
                                 std::int32_t set, PointToPoint::Options options) {
  return new PeerLinksBackend(links, std::move(ranks), index, set, options);
}

}  // namespace hora::collectives
