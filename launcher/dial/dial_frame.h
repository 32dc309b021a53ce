// SPDX-License-Identifier: Apache-2.0
// The messages between a launcher and a machine that dialled it, inside of TLS.  [pure]
// docs/reference/agent-protocol.md describes them; a change edits both.
//
//   frame := length:u32le type:u8 payload        (length counts the payload)
//
// They carry one command at a time, with its three streams, as ssh would: what runs in it is the
// start script of launcher/transports/bootstrap.h and then the agent. Each command has a number, so
// that what is left of one is not taken for the next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/result.h"

namespace hora::launcher {

enum class DialFrameType : std::uint8_t {
  // machine to launcher
  kJoin = 1,    // JoinRequest; the first frame
  kOutput = 2,  // number:u32le bytes                 (stdout of the command)
  kErrors = 3,  // number:u32le bytes                 (its stderr)
  kEnded = 4,   // number:u32le status:u32le          (behind all of its output)
  // launcher to machine
  kAccepted = 32,  // name: what the launcher calls this machine
  kRefused = 33,   // text: why; the connection ends
  kRun = 34,       // number:u32le line: run it with sh
  kInput = 35,     // number:u32le bytes              (stdin of the command)
  kInputEnd = 36,  // number:u32le
  kStop = 37,      // number:u32le: end the command
  kOver = 38,      // exit_code:u32le: the job has ended; the connection ends
  // To a helper of the launcher's own version alone. number:u32le size:u32le, words of that many
  // bytes in all, each with a NUL behind it, and the line of kRun: start the agent that the words
  // name (cached_agent() of launcher/transports/bootstrap.h), or run the line if it is not here.
  kStart = 39,
};

struct DialFrame {
  DialFrameType type = DialFrameType::kJoin;
  std::string_view payload;
};

// Who dials, and the proof that it may.
struct JoinRequest {
  std::string token;  // of the JoinUrl
  std::string name;   // of the machine
  std::uint32_t slots = 0;
  friend bool operator==(const JoinRequest&, const JoinRequest&) = default;
};
std::string encode(const JoinRequest& request);
// Errors: another version, or nothing that was a request.
Result<JoinRequest> decode_join_request(std::string_view payload);

// The name of a machine as it is used in lists of hosts, variables and messages: what DNS allows.
bool is_machine_name(std::string_view name);

inline constexpr std::size_t kLargestJoin = 1024;  // of a frame before the machine is known
inline constexpr std::size_t kLargestDialFrame = 1u << 20;  // of one behind it
inline constexpr std::size_t kDialPiece = 32 * 1024;        // bytes of a stream in one frame

// `head` and `body` are the payload.
void append_dial_frame(std::string& out, DialFrameType type, std::string_view head,
                       std::string_view body = {});

// What kStart carries behind its number.
std::string encode_words(const std::vector<std::string>& words);
// Takes them off the front of `payload`. Nothing: it does not begin with words.
std::optional<std::vector<std::string>> decode_words(std::string_view& payload);

// Cuts a stream into frames.
class DialFrameReader {
 public:
  explicit DialFrameReader(std::size_t largest) : largest_(largest) {}
  void allow(std::size_t largest) { largest_ = largest; }
  void feed(std::string_view bytes);
  // A frame, valid until the next call; nothing when more bytes are needed; an error when one is
  // larger than allowed.
  Result<std::optional<DialFrame>> next();

 private:
  std::size_t largest_;
  std::string buffer_;
  std::size_t position_ = 0;
};

}  // namespace hora::launcher
