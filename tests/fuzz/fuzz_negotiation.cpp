// SPDX-License-Identifier: Apache-2.0
// Messages of the negotiation, as another rank may have made them: any bytes give wishes and
// responses that are written and read back the same, or an error; and a stream of bytes gives the
// same frames however it is cut.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/control/frame_buffer.h"
#include "collectives/negotiation/wire.h"
#include "tests/support/wishes.h"

using namespace hora::collectives;
using namespace hora::test;

namespace {

void read_wishes(std::string_view bytes) {
  const auto wishes = decode_wishes(bytes);
  if (!wishes) return;
  const auto again = decode_wishes(encode_wishes(*wishes));
  if (!again || encode_wishes(*again) != encode_wishes(*wishes)) std::abort();
}

void read_response(std::string_view bytes) {
  WireReader in(bytes);
  Response response;
  if (!decode_response(in, response)) return;
  WireWriter out;
  encode_response(out, response, 0);
  const std::string written = out.take();
  WireReader second(written);
  Response again;
  if (!decode_response(second, again)) std::abort();
}

std::vector<std::string> frames_of(std::string_view bytes, std::size_t piece) {
  constexpr std::uint32_t kLargest = 4096;
  FrameBuffer buffer;
  std::vector<std::string> frames;
  while (!bytes.empty() && !buffer.broken()) {
    buffer.append(bytes.substr(0, piece));
    bytes.remove_prefix(std::min(piece, bytes.size()));
    while (auto frame = buffer.next(kLargest)) {
      if (frame->size() > kLargest) std::abort();
      frames.push_back(std::move(*frame));
    }
  }
  return frames;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  read_wishes(bytes);
  read_response(bytes);
  if (frames_of(bytes, size + 1) != frames_of(bytes, 3)) std::abort();
  return 0;
}
