// SPDX-License-Identifier: Apache-2.0
// The agent protocol's framing: what travels between launcher and agent.  [pure]
// docs/reference/agent-protocol.md is the format page; a change edits both.
//
//   stream := noise* magic frame*            (agent to launcher; noise = what the remote shell
//   printed) stream := frame*                         (launcher to agent) frame  := length:u32le
//   type:u8 payload   (length counts the payload only)
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

enum class FrameType : std::uint8_t {
  // agent to launcher
  kHello = 1,        // messages.h Hello
  kProbeResult = 2,  // ProbeResult
  kReady = 3,        // path: the order can be started; where the runtime lies on this host
  kStarted = 4,      // Started
  kOutput = 5,       // rank:u32le stream:u8 bytes        (stream 1 = stdout, 2 = stderr; raw)
  kOutputEnd = 6,    // rank:u32le stream:u8              (end of file on that stream)
  kExit = 7,         // RankExit
  kGoodbye = 8,      // Goodbye; the last frame of an agent
  kFailure = 9,      // Failure; written by an agent or, instead of it, by a transport
  kLog = 10,         // LogLine
  kInputAck = 11,    // rank:u32le bytes:u32le            (stdin bytes delivered: flow control)
  kStacks = 12,      // StackReport: the answer to kDump
  kProgress = 13,    // meeting:u32le joined:u32le worked:u32le (ranks of the host, by the runtime)
  kGpuFault = 14,    // GpuFault
  kDelivered = 15,   // DeliveryReport: the answer to kKeep and kFetch
  kTreeState = 16,   // TreeState: the answer to kTree
  kRelayPort = 17,   // port:u32le                        (the answer to kRelay; 0: none)
  kRelayOpen = 18,   // connection:u32le                  (it has come; its bytes are kRelayData)
  kRanksGone = 20,   // empty: the ranks were ended and are gone; their output waits for credit
  // launcher to agent
  kProbe = 32,     // Probe
  kPart = 33,      // BundlePart; followed by kData frames, then kDataEnd
  kShipFile = 34,  // ShipFile; followed by kData frames, then kDataEnd
  kData = 35,      // bytes of a zstd frame
  kDataEnd = 36,   // empty
  kOrder = 37,     // HostOrder: validate and prepare, start nothing; answered by kReady or kFailure
  kStart = 38,     // empty: spawn the ranks
  kInput = 39,     // rank:u32le bytes                  (stdin)
  kInputEnd = 40,  // rank:u32le
  kOutputAck = 41,   // bytes:u32le                       (output consumed: flow control)
  kSignal = 42,      // signo:u32le                       (forward to every rank)
  kTerminate = 43,   // grace_ms:u32le [signo:u32le]      ([signo, grace,] TERM, grace, KILL)
  kSuspend = 44,     // empty: the launcher stops (Ctrl-Z); stop ranks, the lease is 24 hours
  kResume = 45,      // empty
  kDump = 46,        // timeout_ms:u32le (what are the ranks doing?)
  kEndRank = 47,     // rank:u32le grace_ms:u32le         (that rank alone: TERM, grace, KILL)
  kSignalRank = 48,  // rank:u32le signo:u32le           (that rank alone; its end stays its own)
  kKeep = 49,        // KeepDelivery: the delivery that follows is for other hosts, too
  kFetch = 50,       // FetchDelivery: other hosts have it
  kForget = 51,      // id: every host has this delivery, do not keep it any more; empty: nor any
  kTree = 52,        // OfferTree: a folder of the user's, in parts; which of them are missing?
  kRelay = 53,       // address: take connections to the rendezvous there, for all hosts
  kLeave = 55,       // empty: the goodbye has come; the launcher's last frame
  // both
  kHeartbeat = 64,   // empty
  kRelayData = 65,   // connection:u32le bytes             (no bytes: it has ended)
  kRelayTaken = 66,  // connection:u32le                   (the bytes are delivered: flow control)
};

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
