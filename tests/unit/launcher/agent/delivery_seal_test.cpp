// SPDX-License-Identifier: Apache-2.0
// Contents come out as they went in, and nothing comes out of a stream that was tampered with.
#include "launcher/agent/delivery_seal.h"

#include <algorithm>

#include "tests/support/catch.h"

using namespace hora;
using namespace hora::launcher;

namespace {

const std::string kKey = "0123456789abcdef0123456789abcdef";
constexpr std::size_t kSealedBlock = kSealedPiece + kSealOverhead;

std::string contents_of(std::size_t size) {
  std::string bytes(size, '\0');
  std::uint32_t state = 1;
  for (char& byte : bytes) {
    state = state * 1664525u + 1013904223u;
    byte = static_cast<char>(state >> 24);
  }
  return bytes;
}

std::string seal(const std::string& contents, std::size_t most, const std::string& key = kKey) {
  DeliverySealer sealer(key);
  std::string sealed;
  for (;;) {
    const std::string some = sealer.next(contents, most);
    if (some.empty()) return sealed;
    sealed += some;
  }
}

// Whether a stream for contents of this size opens.
bool opens(const std::string& sealed, std::size_t size, const std::string& key = kKey) {
  DeliveryOpener opener(key, size);
  std::string contents;
  return opener.feed(sealed, contents).has_value();
}

}  // namespace

TEST_CASE("seal: contents of any size come out as they went in, whatever the cuts") {
  for (const std::size_t size :
       {std::size_t{1}, kSealedPiece - 1, kSealedPiece, kSealedPiece + 1, 3 * kSealedPiece + 17}) {
    const std::string contents = contents_of(size);
    for (const std::size_t most : {std::size_t{1}, kSealedPiece + 1, 10 * kSealedPiece}) {
      const std::string sealed = seal(contents, most);
      REQUIRE(sealed.size() == sealed_size(size));
      for (const std::size_t step : {std::size_t{7}, kSealHeader, kSealedBlock, sealed.size()}) {
        DeliveryOpener opener(kKey, size);
        std::string opened;
        for (std::size_t at = 0; at < sealed.size(); at += step) {
          REQUIRE(opener.missing() == sealed.size() - at);
          REQUIRE(opener.feed(std::string_view(sealed).substr(at, step), opened));
        }
        CHECK(opener.missing() == 0);
        CHECK(opened == contents);
      }
    }
  }
}

TEST_CASE("seal: two streams of the same contents and key differ") {
  const std::string contents = contents_of(100);
  CHECK(seal(contents, 1) != seal(contents, 1));
}

TEST_CASE("seal: a change of any kind is found") {
  const std::size_t size = 3 * kSealedPiece;
  const std::string sealed = seal(contents_of(size), size);
  REQUIRE(opens(sealed, size));
  // In the header, a tag, the contents, an authenticator, the last byte.
  for (const std::size_t at : {std::size_t{0}, kSealHeader, kSealHeader + 1000,
                               kSealHeader + kSealedBlock - 1, sealed.size() - 1}) {
    std::string changed = sealed;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    CHECK_FALSE(opens(changed, size));
  }
  std::string swapped = sealed;
  std::swap_ranges(swapped.begin() + kSealHeader, swapped.begin() + kSealHeader + kSealedBlock,
                   swapped.begin() + kSealHeader + kSealedBlock);
  CHECK_FALSE(opens(swapped, size));
  // A piece less or a piece more than what the receiver was told of, at a cut between pieces.
  CHECK_FALSE(opens(sealed.substr(0, sealed_size(2 * kSealedPiece)), 2 * kSealedPiece));
  std::string longer = contents_of(4 * kSealedPiece);
  CHECK_FALSE(opens(sealed + seal(longer, 1).substr(kSealHeader, kSealedBlock), longer.size()));
  CHECK_FALSE(opens(sealed, size, "0123456789abcdef0123456789abcdeF"));
}

TEST_CASE("seal: nothing of a piece that does not open is given") {
  std::string sealed = seal(contents_of(2 * kSealedPiece), 1);
  sealed.back() = static_cast<char>(sealed.back() ^ 1);
  DeliveryOpener opener(kKey, 2 * kSealedPiece);
  std::string opened;
  CHECK_FALSE(opener.feed(sealed, opened));
  CHECK(opened == contents_of(kSealedPiece));
}
