// SPDX-License-Identifier: Apache-2.0
// The agent protocol's framing: what travels between launcher and agent.  [pure]
// docs/reference/agent-protocol.md is the format page; a change edits both.
//
//   agent to launcher:  noise* magic frame*    (noise: what the remote shell printed)
//   launcher to agent:  frame*
//   frame := length:u32le type:u8 payload      (length counts the payload only)
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/base/little_endian.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

inline constexpr std::string_view kAgentMagic = "\x01HORA-AGENT-1\n";
inline constexpr std::size_t kMaxFramePayload = 64u << 20;
inline constexpr std::size_t kFrameHeaderSize = 5;

// messages.h names the types.
enum class FrameType : std::uint8_t;

struct Frame {
  FrameType type;
  std::string payload;
  friend bool operator==(const Frame&, const Frame&) = default;
};

struct FrameHeader {
  FrameType type;
  std::size_t length = 0;  // of the payload
};

// The numbers of a payload, one after the other.
using hora::append_u32;
using hora::read_u32;
// A payload of one number.
std::string u32_payload(std::uint32_t value);

std::string encode_frame(FrameType type, std::string_view payload = {});
// Appends to `out` without the temporary.
void append_frame(std::string& out, FrameType type, std::string_view payload);

// Cuts a byte stream into frames. Bytes go in as they arrive; frames come out when whole.
// A frame longer than kMaxFramePayload is an error: the stream is beyond repair.
class FrameReader {
 public:
  void feed(std::string_view bytes);
  // Of the next frame, complete or not: a caller that knows the allowed frames refuses it here,
  // before the rest of it is kept.
  std::optional<FrameHeader> header() const;
  // A frame; nothing when more bytes are needed; an error when the stream is not ours.
  Result<std::optional<Frame>> next();
  std::size_t buffered() const { return buffer_.size() - position_; }

 private:
  std::string buffer_;
  std::size_t position_ = 0;
};

// Finds the agent's magic after the output of the remote shell, and keeps that noise for the error
// text. A caller gives up when it has overflowed().
class MagicFinder {
 public:
  static constexpr std::size_t kMaxNoise = 64 * 1024;
  // True once the magic was seen; `rest` then holds the bytes after it.
  bool feed(std::string_view bytes, std::string& rest);
  const std::string& noise() const { return noise_; }
  bool overflowed() const { return noise_.size() > kMaxNoise; }

 private:
  std::string noise_;
};

}  // namespace hora::launcher
