// SPDX-License-Identifier: Apache-2.0
// A step as the algorithms over shared memory see it: its tensors as one long vector. It refers to
// the step, which must outlive it.
#pragma once

#include <cstdint>
#include <cstring>
#include <utility>

#include "collectives/backend.h"
#include "collectives/backends/shm/piece_view.h"
#include "collectives/kernels/kernels.h"
#include "collectives/memory/cache_lines.h"

namespace hora::collectives::shm {

// From this size on, writing the outputs would evict inputs and rings from a core's own cache.
inline constexpr std::int64_t kStreamFrom = 4 * 1024 * 1024;

class Work {
 public:
  void assign(const Step& step) {
    step_ = &step;
    width_ = static_cast<std::int64_t>(dtype_bytes(dtype()));
    view_.assign(step.pieces, step.piece_count);
    streams_ = count() * width_ >= kStreamFrom;
  }

  const Step& step() const { return *step_; }
  hora_dtype dtype() const { return static_cast<hora_dtype>(step_->dtype); }
  hora_reduce_op reduce_op() const { return static_cast<hora_reduce_op>(step_->reduce_op); }
  std::int64_t width() const { return width_; }
  const PieceView& view() const { return view_; }
  std::int64_t count() const { return view_.count(); }
  const Piece& piece() const { return step_->pieces[0]; }

  // Copies elements [begin, end) of the inputs, prescaled, to `target`.
  void give(char* target, std::int64_t begin, std::int64_t end) const {
    view_.each(
        begin, end,
        [&](const Piece& piece, std::int64_t first, std::int64_t count, std::int64_t offset) {
          const char* source = static_cast<const char*>(piece.input) + first * width_;
          if (step_->prescale == 1.0) {
            std::memcpy(target + offset * width_, source, static_cast<std::size_t>(count * width_));
          } else {
            kernels().scale[dtype()](target + offset * width_, source, count, step_->prescale);
          }
        });
  }

  // Copies back to the outputs.
  void take(const char* source, std::int64_t begin, std::int64_t end) const {
    view_.each(begin, end,
               [&](const Piece& piece, std::int64_t first, std::int64_t count,
                   std::int64_t offset) { put(piece, first, source + offset * width_, count); });
  }
  // Copies elements to an output. Where the output is the input that has just been read, its lines
  // are in the cache, and bypassing the cache would take twice as long.
  void put(const Piece& piece, std::int64_t first, const char* source, std::int64_t count) const {
    const auto bytes = static_cast<std::size_t>(count * width_);
    char* const output = static_cast<char*>(piece.output) + first * width_;
    const bool just_read = step_->operation == HORA_ALLREDUCE && piece.input == piece.output;
    if (streams_ && !just_read) {
      stream_copy(output, source, bytes);
    } else {
      std::memcpy(output, source, bytes);
    }
  }

  // target = source(0) op source(1) op ... over all ranks; `source(rank)` returns the address of
  // that rank's elements.
  template <typename Source>
  void reduce(char* target, const Source& source, int ranks, std::int64_t count) const {
    reduce_ranks(target, source, ranks, count, dtype(), reduce_op(), step_->postscale,
                 step_->divisor);
  }

 private:
  const Step* step_ = nullptr;
  std::int64_t width_ = 1;
  PieceView view_;
  bool streams_ = false;  // outputs bypass the caches
};

inline std::uint64_t turns_for(std::int64_t bytes, std::int64_t room) {
  return static_cast<std::uint64_t>((bytes + room - 1) / room);
}

// Part `turn` of `bytes` bytes: where it begins and its length (0 when there is none).
inline std::pair<std::int64_t, std::int64_t> portion(std::int64_t bytes, std::int64_t room,
                                                     std::uint64_t turn) {
  const std::int64_t begin = std::min(bytes, static_cast<std::int64_t>(turn) * room);
  return {begin, std::min(room, bytes - begin)};
}

}  // namespace hora::collectives::shm
