// SPDX-License-Identifier: Apache-2.0
// The hash is of the packed bytes, as they are made: nothing is read twice, here or on the hosts.
#include "launcher/build/frame_packer.h"

#include <zstd.h>

#include "launcher/build/sha256.h"
#include "launcher/protocol/frame.h"

namespace hora::launcher {

namespace {

constexpr std::size_t kChunk = 256 * 1024;

}  // namespace

// Releases what zstd allocates.
struct FramePacker::State {
  ZSTD_CCtx* context = ::ZSTD_createCCtx();
  Sha256 hash;
  std::string chunk = std::string(kChunk, '\0');
  std::string frames;
  State() = default;
  ~State() { ::ZSTD_freeCCtx(context); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
};

FramePacker::FramePacker(int level) : state_(std::make_unique<State>()) {
  if (state_->context != nullptr) {
    ::ZSTD_CCtx_setParameter(state_->context, ZSTD_c_compressionLevel, level);
  }
}

FramePacker::~FramePacker() = default;

// One turn of the loop fills one chunk, which becomes one frame: agents take their time between
// two.
Status FramePacker::run(std::string_view bytes, bool last) {
  if (state_->context == nullptr) return make_error(ErrorCode::kFailed, "zstd: out of memory");
  ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
  bool more = true;
  while (more) {
    ZSTD_outBuffer out{state_->chunk.data(), state_->chunk.size(), 0};
    const std::size_t left =
        ::ZSTD_compressStream2(state_->context, &out, &in, last ? ZSTD_e_end : ZSTD_e_continue);
    if (::ZSTD_isError(left) != 0) {
      return make_error(ErrorCode::kFailed,
                        std::string("packing failed: ") + ::ZSTD_getErrorName(left));
    }
    const std::string_view made(state_->chunk.data(), out.pos);
    state_->hash.add(made);
    if (!made.empty()) append_frame(state_->frames, FrameType::kData, made);
    more = last ? left > 0 : in.pos < in.size;
  }
  return Ok{};
}

Status FramePacker::add(std::string_view bytes) { return run(bytes, /*last=*/false); }

Result<FramePacker::Packed> FramePacker::finish() {
  HORA_TRY(run({}, /*last=*/true));
  append_frame(state_->frames, FrameType::kDataEnd, {});
  return Packed{state_->hash.hex(), std::move(state_->frames)};
}

}  // namespace hora::launcher
