// SPDX-License-Identifier: Apache-2.0
// The one file that knows libsodium.
#include "launcher/agent/delivery_seal.h"

#include <sodium.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace hora::launcher {

namespace {

static_assert(kSealHeader == crypto_secretstream_xchacha20poly1305_HEADERBYTES);
static_assert(kSealOverhead == crypto_secretstream_xchacha20poly1305_ABYTES);

using Bytes = const unsigned char*;
Bytes bytes_of(std::string_view text) { return reinterpret_cast<Bytes>(text.data()); }

// Chooses the vector code of this processor; without it, libsodium runs portable code, a sixth as
// fast. A second call does nothing. It fails where the kernel gives no random numbers, without
// which os::random_bytes() has given up already.
void initialize() {
  if (::sodium_init() < 0) std::abort();
}

// The tag of the last piece tells a stream that ended from one that was cut.
unsigned char tag_of(bool last) {
  return last ? crypto_secretstream_xchacha20poly1305_TAG_FINAL
              : crypto_secretstream_xchacha20poly1305_TAG_MESSAGE;
}

}  // namespace

struct DeliverySealer::State {
  crypto_secretstream_xchacha20poly1305_state stream;
  std::string header;  // until it has been given
  std::size_t sealed_to = 0;

  ~State() { ::sodium_memzero(&stream, sizeof stream); }
};

DeliverySealer::DeliverySealer(std::string_view key) : state_(std::make_unique<State>()) {
  initialize();
  state_->header.resize(kSealHeader);
  ::crypto_secretstream_xchacha20poly1305_init_push(
      &state_->stream, reinterpret_cast<unsigned char*>(state_->header.data()), bytes_of(key));
}

DeliverySealer::~DeliverySealer() = default;
DeliverySealer::DeliverySealer(DeliverySealer&&) noexcept = default;

std::string DeliverySealer::next(std::string_view contents, std::size_t most) {
  State& state = *state_;
  std::string sealed = std::exchange(state.header, {});
  while (state.sealed_to < contents.size() && sealed.size() < most) {
    const std::string_view piece = contents.substr(state.sealed_to, kSealedPiece);
    state.sealed_to += piece.size();
    const std::size_t at = sealed.size();
    sealed.resize(at + piece.size() + kSealOverhead);
    ::crypto_secretstream_xchacha20poly1305_push(
        &state.stream, reinterpret_cast<unsigned char*>(sealed.data() + at), nullptr,
        bytes_of(piece), piece.size(), nullptr, 0, tag_of(state.sealed_to == contents.size()));
  }
  return sealed;
}

struct DeliveryOpener::State {
  crypto_secretstream_xchacha20poly1305_state stream;
  std::string key;  // until the header is here
  std::string pending;
  std::size_t left;     // of the contents, in pieces that have not been opened
  std::size_t missing;  // on the wire

  ~State() {
    ::sodium_memzero(&stream, sizeof stream);
    ::sodium_memzero(key.data(), key.size());
  }
  std::size_t next_size() const {
    return key.empty() ? std::min(left, kSealedPiece) + kSealOverhead : kSealHeader;
  }
  Status open(std::string_view piece, std::string& contents);
};

DeliveryOpener::DeliveryOpener(std::string_view key, std::size_t contents_size)
    : state_(std::make_unique<State>()) {
  initialize();
  state_->key = key;
  state_->left = contents_size;
  state_->missing = sealed_size(contents_size);
}

DeliveryOpener::~DeliveryOpener() = default;
DeliveryOpener::DeliveryOpener(DeliveryOpener&&) noexcept = default;

std::size_t DeliveryOpener::missing() const { return state_->missing; }

// A piece is opened when all of it is here: what has no valid tag must not be looked at.
Status DeliveryOpener::feed(std::string_view bytes, std::string& contents) {
  State& state = *state_;
  state.missing -= bytes.size();
  while (!bytes.empty()) {
    const std::size_t size = state.next_size();
    // Most pieces come in one read with others: they are opened where they lie.
    if (state.pending.empty() && bytes.size() >= size) {
      HORA_TRY(state.open(bytes.substr(0, size), contents));
      bytes.remove_prefix(size);
      continue;
    }
    const std::string_view some = bytes.substr(0, size - state.pending.size());
    state.pending.append(some);
    bytes.remove_prefix(some.size());
    if (state.pending.size() < size) return Ok{};
    HORA_TRY(state.open(state.pending, contents));
    state.pending.clear();
  }
  return Ok{};
}

Status DeliveryOpener::State::open(std::string_view piece, std::string& contents) {
  if (!key.empty()) {
    // Any header is possible; a wrong one shows at the first piece.
    (void)::crypto_secretstream_xchacha20poly1305_init_pull(&stream, bytes_of(piece),
                                                            bytes_of(key));
    ::sodium_memzero(key.data(), key.size());
    key.clear();
    return Ok{};
  }
  const std::size_t size = piece.size() - kSealOverhead;
  const std::size_t at = contents.size();
  contents.resize(at + size);
  unsigned char tag = 0;
  const int opened = ::crypto_secretstream_xchacha20poly1305_pull(
      &stream, reinterpret_cast<unsigned char*>(contents.data() + at), nullptr, &tag,
      bytes_of(piece), piece.size(), nullptr, 0);
  left -= size;
  if (opened != 0 || tag != tag_of(left == 0)) {
    contents.resize(at);
    return make_error(ErrorCode::kFailed, "what it sent was changed on the way");
  }
  return Ok{};
}

}  // namespace hora::launcher
