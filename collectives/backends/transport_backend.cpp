#include "collectives/backends/transport_backend.h"

#include <cstring>
#include <exception>
#include <numeric>

#include "collectives/kernels/kernels.h"

namespace hora::collectives {

namespace {

class TransportBackend final : public Backend {
 public:
  TransportBackend(Transport& transport, std::vector<std::int32_t> ranks, int index,
                   std::int32_t set, PointToPoint::Options options)
      : transport_(transport),

        algorithms_(transport, std::move(ranks), index, static_cast<std::uint32_t>(set), options) {}

  Progress execute(const Step& step, std::uint64_t*, ErrorText& error) noexcept override {
    try {
      return run(step, error) ? Progress::kDone : Progress::kFailed;
    } catch (const std::exception& failure) {  // out of memory
      error.set("%s", failure.what());
      return Progress::kFailed;
    }
  }
  Progress poll(std::uint64_t, ErrorText&) noexcept override { return Progress::kDone; }
  void abort() noexcept override { transport_.abort(); }
  void destroy() noexcept override { delete this; }

 private:
  bool run(const Step& step, ErrorText& error) {
    switch (static_cast<hora_operation>(step.operation)) {
      case HORA_ALLREDUCE:
        return allreduce(step, error);
      case HORA_ALLGATHER:
        return allgather(step, error);
      case HORA_BROADCAST:
        return broadcast(step, error);
      case HORA_ALLTOALL:
        return alltoall(step, error);
      case HORA_REDUCESCATTER:
        return reducescatter(step, error);
      case HORA_BARRIER:
        return algorithms_.barrier(error);
      case HORA_JOIN:
        break;
    }
    return error.set("this backend has no such operation");
  }

  static std::int64_t width(const Step& step) {
    return static_cast<std::int64_t>(dtype_bytes(static_cast<hora_dtype>(step.dtype)));
  }

  static void begin_activity(const Step& step, const char* name) {
    if (step.activities != nullptr) step.activities->begin(name);
  }
  static void end_activity(const Step& step) {
    if (step.activities != nullptr) step.activities->end();
  }

  static void copy(void* to, const void* from, std::int64_t bytes) {
    if (bytes > 0 && to != from) std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }

  bool reduce(void* data, std::int64_t count, const Step& step, ErrorText& error) {
    const auto dtype = static_cast<hora_dtype>(step.dtype);
    apply_scale(data, count, dtype, step.prescale, 1);
    if (!algorithms_.allreduce(data, count, dtype, static_cast<hora_reduce_op>(step.reduce_op),
                               error)) {
      return false;
    }
    apply_scale(data, count, dtype, step.postscale, step.divisor);
    return true;
  }

  bool allreduce(const Step& step, ErrorText& error) {
    const std::int64_t width_bytes = width(step);
    if (step.piece_count == 1) {
      const Piece& piece = step.pieces[0];
      copy(piece.output, piece.input, piece.count * width_bytes);
      return reduce(piece.output, piece.count, step, error);
    }
    std::int64_t total = 0;
    for (int i = 0; i < step.piece_count; ++i) total += step.pieces[i].count;
    char* const packed = buffer(total * width_bytes);
    char* place = packed;
    begin_activity(step, "MEMCPY_IN_FUSION_BUFFER");
    for (int i = 0; i < step.piece_count; ++i) {
      copy(place, step.pieces[i].input, step.pieces[i].count * width_bytes);
      place += step.pieces[i].count * width_bytes;
    }
    end_activity(step);
    if (!reduce(packed, total, step, error)) return false;
    place = packed;
    begin_activity(step, "MEMCPY_OUT_FUSION_BUFFER");
    for (int i = 0; i < step.piece_count; ++i) {
      copy(step.pieces[i].output, place, step.pieces[i].count * width_bytes);
      place += step.pieces[i].count * width_bytes;
    }
    end_activity(step);
    return true;
  }

  bool allgather(const Step& step, ErrorText& error) {
    const Piece& piece = step.pieces[0];
    std::vector<std::int64_t> bytes = in_bytes(step.receive_counts, step);
    const std::int64_t before = std::accumulate(bytes.begin(), bytes.begin() + index(), INT64_C(0));
    copy(static_cast<char*>(piece.output) + before, piece.input, piece.count * width(step));
    return algorithms_.allgather(piece.output, bytes.data(), error);
  }

  bool broadcast(const Step& step, ErrorText& error) {
    const Piece& piece = step.pieces[0];
    const std::int64_t bytes = piece.count * width(step);
    if (index() == step.root) copy(piece.output, piece.input, bytes);
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
    char* const all = buffer(piece.count * width(step));
    copy(all, piece.input, piece.count * width(step));
    apply_scale(all, piece.count, dtype, step.prescale, 1);
    if (!algorithms_.reduce_scatter(all, step.receive_counts, dtype,
                                    static_cast<hora_reduce_op>(step.reduce_op), error)) {
      return false;
    }
    const std::int64_t before =
        std::accumulate(step.receive_counts, step.receive_counts + index(), INT64_C(0));
    const std::int64_t mine = step.receive_counts[index()];
    copy(piece.output, all + before * width(step), mine * width(step));
    apply_scale(piece.output, mine, dtype, step.postscale, step.divisor);
    return true;
  }

  int index() const { return algorithms_.index(); }

  std::vector<std::int64_t> in_bytes(const std::int64_t* counts, const Step& step) const {
    std::vector<std::int64_t> bytes(counts, counts + algorithms_.size());
    for (std::int64_t& each : bytes) each *= width(step);
    return bytes;
  }

  char* buffer(std::int64_t bytes) {
    if (static_cast<std::int64_t>(buffer_.size()) < bytes) {
      buffer_.resize(static_cast<std::size_t>(bytes));
    }
    return buffer_.data();
  }

  Transport& transport_;

  PointToPoint algorithms_;
  std::vector<char> buffer_;
};

}  // namespace

Backend* make_transport_backend(Transport& transport, std::vector<std::int32_t> ranks, int index,
                                std::int32_t set, PointToPoint::Options options) {
  return new TransportBackend(transport, std::move(ranks), index, set, options);
}

}  // namespace hora::collectives
