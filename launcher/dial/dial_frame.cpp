// SPDX-License-Identifier: Apache-2.0
#include "launcher/dial/dial_frame.h"

#include <algorithm>

#include "rendezvous/base/little_endian.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kHeader = 5;
constexpr std::size_t kTokenSize = 32;  // as os::random_token() makes it
constexpr std::size_t kLongestName = 255;

}  // namespace

// The version comes first and stays there, so that every later one can be told from this one.
std::string encode(const JoinRequest& request) {
  std::string out;
  append_u32(out, kVersion);
  append_u32(out, request.slots);
  return out + request.token + request.name;
}

// Nothing of it is believed yet: the server compares the token and checks the name.
Result<JoinRequest> decode_join_request(std::string_view payload) {
  const auto version = read_u32(payload);
  if (version && *version != kVersion) {
    return make_error(ErrorCode::kFailed, "this horarun speaks version " +
                                              std::to_string(*version) + " of the protocol, not " +
                                              std::to_string(kVersion));
  }
  const auto slots = read_u32(payload);
  if (!slots || payload.size() < kTokenSize) {
    return make_error(ErrorCode::kFailed, "the request is incomplete");
  }
  return JoinRequest{std::string(payload.substr(0, kTokenSize)),
                     std::string(payload.substr(kTokenSize)), *slots};
}

// A name goes into variables, lists of hosts and messages on a terminal: nothing that could be
// taken for more than a name. The colon is that of IPv6 addresses.
bool is_machine_name(std::string_view name) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '.' || c == '_' || c == ':';
  };
  return !name.empty() && name.size() <= kLongestName && name.front() != '-' &&
         std::all_of(name.begin(), name.end(), fits);
}

// Two parts, so that who sends a piece of a stream need not put its number in front of a copy of
// it.
void append_dial_frame(std::string& out, DialFrameType type, std::string_view head,
                       std::string_view body) {
  append_u32(out, static_cast<std::uint32_t>(head.size() + body.size()));
  out.push_back(static_cast<char>(type));
  out.append(head).append(body);
}

// No word of a command line can hold a NUL.
std::string encode_words(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text.append(word).push_back('\0');
  std::string out;
  append_u32(out, static_cast<std::uint32_t>(text.size()));
  return out + text;
}

// The size comes first, so that what is behind the words may hold anything.
std::optional<std::vector<std::string>> decode_words(std::string_view& payload) {
  const auto size = read_u32(payload);
  if (!size || *size > payload.size()) return std::nullopt;
  std::string_view text = payload.substr(0, *size);
  payload.remove_prefix(*size);
  std::vector<std::string> words;
  while (!text.empty()) {
    const std::size_t end = text.find('\0');
    if (end == std::string_view::npos) return std::nullopt;
    words.emplace_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  return words;
}

// A reader that has no half frame left starts anew, so the buffer stays as small as the largest
// read.
void DialFrameReader::feed(std::string_view bytes) {
  if (position_ == buffer_.size()) {
    buffer_.clear();
    position_ = 0;
  }
  buffer_.append(bytes);
}

// The length is looked at as soon as it is there: nobody can make us keep a frame that is too long.
Result<std::optional<DialFrame>> DialFrameReader::next() {
  std::string_view rest = std::string_view(buffer_).substr(position_);
  const auto length = read_u32(rest);
  if (length && *length > largest_) {
    return make_error(ErrorCode::kFailed, "it sent a message that is too long");
  }
  if (!length || rest.size() < 1 + *length) {
    // Only an incomplete frame is ever moved.
    buffer_.erase(0, position_);
    position_ = 0;
    return std::optional<DialFrame>();
  }
  position_ += kHeader + *length;
  return std::optional(
      DialFrame{static_cast<DialFrameType>(rest.front()), rest.substr(1, *length)});
}

}  // namespace hora::launcher
