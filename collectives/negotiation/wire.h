// SPDX-License-Identifier: Apache-2.0
// The wire format of requests and responses.  [pure]
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/negotiation/request.h"

namespace hora::collectives {

// The bytes of the control messages: little-endian integers, of variable length where small values
// are usual. The reader never reads past the end: after a malformed field ok() is false and every
// further read returns zero or an empty value.

class WireWriter {
 public:
  void u8(std::uint8_t value) { bytes_.push_back(static_cast<char>(value)); }
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) u8(static_cast<std::uint8_t>(value | 0x80));
    u8(static_cast<std::uint8_t>(value));
  }
  // Zigzag: small magnitudes of either sign stay short.
  void integer(std::int64_t value) {
    varint((static_cast<std::uint64_t>(value) << 1) ^ static_cast<std::uint64_t>(value >> 63));
  }
  void real(double value) {
    char raw[sizeof value];
    std::memcpy(raw, &value, sizeof value);
    bytes_.append(raw, sizeof raw);
  }
  void text(std::string_view value) {
    varint(value.size());
    bytes_.append(value);
  }
  template <typename Integer>
  void integers(const std::vector<Integer>& values) {
    varint(values.size());
    for (Integer value : values) integer(value);
  }
  // A list in which neighbours resemble each other, such as what the ranks of a job say of
  // themselves: of each text only what differs from the one before it, and equal ones as a count.
  void texts(const std::vector<std::string>& values);
  std::string take() { return std::move(bytes_); }
  std::size_t size() const { return bytes_.size(); }

 private:
  std::string bytes_;
};

class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : rest_(bytes) {}

  bool ok() const { return ok_; }
  bool at_end() const { return rest_.empty(); }

  std::uint8_t u8() {
    if (rest_.empty()) {
      fail();
      return 0;
    }
    const auto value = static_cast<std::uint8_t>(rest_.front());
    rest_.remove_prefix(1);
    return value;
  }
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const std::uint8_t byte = u8();
      value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
      if ((byte & 0x80) == 0) return value;
    }
    fail();
    return 0;
  }
  std::int64_t integer() {
    const std::uint64_t raw = varint();
    return static_cast<std::int64_t>((raw >> 1) ^ (~(raw & 1) + 1));
  }
  double real() {
    double value = 0;
    const std::string_view raw = take(sizeof value);
    if (raw.size() == sizeof value) std::memcpy(&value, raw.data(), sizeof value);
    return value;
  }
  std::string text() { return std::string(take(varint())); }
  template <typename Integer>
  std::vector<Integer> integers() {
    const std::uint64_t count = varint();
    std::vector<Integer> values;
    if (count > rest_.size()) {  // each takes a byte or more: reserve() needs a bound
      fail();
      return values;
    }
    values.reserve(count);
    for (std::uint64_t i = 0; i < count; ++i) values.push_back(static_cast<Integer>(integer()));
    return values;
  }
  // Fails if there are more than `most`: a count of equal texts may be far larger than the message.
  std::vector<std::string> texts(std::size_t most);
  // The unread bytes.
  std::string_view rest() const { return rest_; }
  // For a field whose value is out of range.
  void fail() {
    ok_ = false;
    rest_ = {};
  }

 private:
  std::string_view take(std::uint64_t count) {
    if (count > rest_.size()) {
      fail();
      return {};
    }
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }

  std::string_view rest_;
  bool ok_ = true;
};

// Encodes and decodes the control messages of the negotiation.
// Decoding fails for anything that encoding cannot have produced.

void encode_request(WireWriter& out, const Request& request);
bool decode_request(WireReader& in, Request& request);

// `receiver` is the set index of the rank that gets the bytes (it decides an alltoall's column).
void encode_response(WireWriter& out, const Response& response, int receiver);
bool decode_response(WireReader& in, Response& response);

}  // namespace hora::collectives
