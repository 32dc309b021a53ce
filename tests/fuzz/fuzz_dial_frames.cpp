// SPDX-License-Identifier: Apache-2.0
// What a machine sends that has dialled. The first byte chooses how the rest is cut into reads: the
// frames are the same, none is longer than allowed, and the payload of the first one is a request
// that is written as it was read, or no request.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/dial/dial_protocol.h"

using namespace hora::launcher;

namespace {

struct Read {
  std::vector<std::pair<DialFrameType, std::string>> frames;
  bool refused = false;
  friend bool operator==(const Read&, const Read&) = default;
};

Read read_all(std::string_view bytes, std::size_t piece) {
  DialFrameReader reader(kLargestJoin);
  Read read;
  while (!bytes.empty() && !read.refused) {
    const std::size_t taken = std::min(piece, bytes.size());
    reader.feed(bytes.substr(0, taken));
    bytes.remove_prefix(taken);
    while (true) {
      const auto frame = reader.next();
      if (!frame) {
        if (frame.error().message.empty()) std::abort();
        read.refused = true;
        break;
      }
      if (!frame->has_value()) break;
      const std::size_t most = read.frames.empty() ? kLargestJoin : 64 * kLargestJoin;
      if ((*frame)->payload.size() > most) std::abort();
      read.frames.emplace_back((*frame)->type, std::string((*frame)->payload));
      reader.allow(64 * kLargestJoin);
    }
  }
  return read;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Read read = read_all(bytes, std::size_t{data[0]} + 1);
  if (!(read == read_all(bytes, 1))) std::abort();
  std::string written;
  for (const auto& [type, payload] : read.frames) append_dial_frame(written, type, payload);
  if (bytes.substr(0, written.size()) != written) std::abort();
  if (read.frames.empty()) return 0;
  const std::string& payload = read.frames.front().second;
  const auto request = decode_join_request(payload);
  if (!request) return request.error().message.empty() ? std::abort() : (void)0, 0;
  if (encode(*request) != payload) std::abort();
  if (is_machine_name(request->name)) {
    for (const char c : request->name) {
      if (c <= ' ' || c > '~' || std::string_view(",;$`'\"\\/[]").find(c) != std::string_view::npos)
        std::abort();
    }
  }
  return 0;
}
