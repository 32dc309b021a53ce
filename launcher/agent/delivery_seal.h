// SPDX-License-Identifier: Apache-2.0
// Encrypts and authenticates what goes from host to host (protocol/delivery_proof.h): libsodium's
// secretstream, XChaCha20-Poly1305. Pieces that were changed, reordered, repeated or left out do
// not open, nor does a stream that ends early. Both sides know how long the contents are, so no
// lengths travel:
//
//   header (24 bytes), then the contents in pieces of kSealedPiece bytes, the last one shorter;
//   each piece is kSealOverhead bytes longer when it is sealed
//
// One object for one stream; any thread, one at a time.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "rendezvous/base/result.h"

namespace hora::launcher {

// A receiver cannot use a piece before all of it has come, so pieces are small beside what a socket
// holds; each costs 17 bytes and a tag.
inline constexpr std::size_t kSealedPiece = std::size_t{64} * 1024;
inline constexpr std::size_t kSealHeader = 24;
inline constexpr std::size_t kSealOverhead = 17;

// Bytes on the wire for contents of this size.
constexpr std::size_t sealed_size(std::size_t contents) {
  return kSealHeader + contents + kSealOverhead * ((contents + kSealedPiece - 1) / kSealedPiece);
}

class DeliverySealer {
 public:
  // `key` has 32 bytes, and is for this stream alone.
  explicit DeliverySealer(std::string_view key);
  ~DeliverySealer();
  DeliverySealer(DeliverySealer&&) noexcept;

  // The next pieces of `contents`, which is the same at each call, about `most` bytes; empty when
  // all of it was given. The first call begins with the header.
  std::string next(std::string_view contents, std::size_t most);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

class DeliveryOpener {
 public:
  DeliveryOpener(std::string_view key, std::size_t contents_size);
  ~DeliveryOpener();
  DeliveryOpener(DeliveryOpener&&) noexcept;

  // How many bytes on the wire are still to come.
  std::size_t missing() const;
  // Takes bytes in any cut, never more than missing(), and appends what they open to `contents`.
  // Error: they are not what was sealed with this key. Then nothing more may be fed.
  Status feed(std::string_view bytes, std::string& contents);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hora::launcher
