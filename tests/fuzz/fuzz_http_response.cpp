// SPDX-License-Identifier: Apache-2.0
// Bytes from a server, through the response reader and the batch decoder. The first byte says in
// what pieces they arrive, and whether the request was a HEAD.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "rendezvous/http/reader.h"
#include "rendezvous/http/writer.h"
#include "rendezvous/kv_target.h"

using namespace hora;

namespace {

void must(bool condition) {
  if (!condition) std::abort();
}

struct Outcome {
  bool complete = false;
  int status = 0;
  std::string body;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

Outcome read_response(std::string_view stream, std::size_t step, bool head_only) {
  http::ResponseReader reader;
  reader.allow_body(10'000);
  std::string buffer;
  for (std::size_t at = 0; at < stream.size(); at += step) {
    buffer += stream.substr(at, step);
    std::string_view bytes = buffer;
    auto result = http::ReadStep::kHead;
    while (result == http::ReadStep::kHead) result = reader.read(bytes, head_only);
    if (result == http::ReadStep::kError) return {};
    if (result == http::ReadStep::kComplete)
      return {true, reader.head().status, reader.take_body()};
    buffer = std::string(bytes);
  }
  if (reader.end_of_stream() != http::ReadStep::kComplete) return {};
  return {true, reader.head().status, reader.take_body()};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::size_t step = 1 + data[0] % 64;
  const bool head_only = (data[0] & 0x80) != 0;
  const std::string_view stream(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Outcome whole = read_response(stream, stream.size(), head_only);
  const Outcome pieces = read_response(stream, step, head_only);
  if (stream.size() < http::ReadLimits{}.head_bytes) must(whole == pieces);

  if (auto entries = rendezvous::decode_batch(stream)) {
    // "01 1" and the like read as "1 1": only the meaning is the same.
    auto again = rendezvous::decode_batch(rendezvous::encode_batch(*entries));
    must(again && *again == *entries);
  }
  if (const auto decoded = http::percent_decode(stream)) {
    must(http::percent_decode(http::percent_encode(*decoded)) == decoded);
  }
  return 0;
}
