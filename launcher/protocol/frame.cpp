// SPDX-License-Identifier: Apache-2.0
#include "launcher/protocol/frame.h"

#include <algorithm>
#include <cstring>

namespace hora::launcher {

std::string u32_payload(std::uint32_t value) {
  std::string out;
  append_u32(out, value);
  return out;
}

void append_frame(std::string& out, FrameType type, std::string_view payload) {
  append_u32(out, static_cast<std::uint32_t>(payload.size()));
  out.push_back(static_cast<char>(type));
  out.append(payload);
}

std::string encode_frame(FrameType type, std::string_view payload) {
  std::string out;
  out.reserve(kFrameHeaderSize + payload.size());
  append_frame(out, type, payload);
  return out;
}

void FrameReader::feed(std::string_view bytes) {
  if (position_ == buffer_.size()) {
    buffer_.clear();
    position_ = 0;
  } else if (position_ > 64 * 1024 && position_ > buffer_.size() / 2) {
    buffer_.erase(0, position_);
    position_ = 0;
  }
  buffer_.append(bytes);
}

std::optional<FrameHeader> FrameReader::header() const {
  if (buffered() < kFrameHeaderSize) return std::nullopt;
  const char* begin = buffer_.data() + position_;
  return FrameHeader{static_cast<FrameType>(begin[4]), load_u32(begin)};
}

Result<std::optional<Frame>> FrameReader::next() {
  const auto head = header();
  if (!head) return std::optional<Frame>();
  const std::size_t length = head->length;
  if (length > kMaxFramePayload) {
    return make_error(ErrorCode::kFailed,
                      "a frame of " + std::to_string(length) + " bytes: not the agent protocol");
  }
  if (buffered() < kFrameHeaderSize + length) return std::optional<Frame>();
  Frame frame{head->type, buffer_.substr(position_ + kFrameHeaderSize, length)};
  position_ += kFrameHeaderSize + length;
  return std::optional<Frame>(std::move(frame));
}

bool MagicFinder::feed(std::string_view bytes, std::string& rest) {
  // The magic may straddle two reads, so the search starts a little before the new bytes.
  const std::size_t old_size = noise_.size();
  noise_.append(bytes);
  const std::size_t from = old_size >= kAgentMagic.size() ? old_size - (kAgentMagic.size() - 1) : 0;
  const std::size_t found = noise_.find(kAgentMagic, from);
  if (found == std::string::npos) return false;
  rest = noise_.substr(found + kAgentMagic.size());
  noise_.resize(found);
  return true;
}

}  // namespace hora::launcher
