// SPDX-License-Identifier: Apache-2.0
#include "launcher/protocol/launcher_message.h"

#include <utility>

namespace hora::launcher {

namespace {

constexpr std::uint32_t kLargestSignal = 64;

// Takes the numbers of a payload in turn; good() says afterwards whether all were there.
class Numbers {
 public:
  explicit Numbers(std::string_view payload) : rest_(payload) {}

  std::uint32_t next() {
    const auto number = read_u32(rest_);
    good_ = good_ && number.has_value();
    return number.value_or(0);
  }
  int rank() { return static_cast<int>(next()); }
  Milliseconds time() { return Milliseconds(next()); }
  int signal() {
    const std::uint32_t number = next();
    good_ = good_ && number >= 1 && number <= kLargestSignal;
    return static_cast<int>(number);
  }
  bool is_empty() const { return rest_.empty(); }
  bool good() const { return good_; }

 private:
  std::string_view rest_;
  bool good_ = true;
};

template <typename Message>
Result<LauncherMessage> as_launcher_message(Result<Message> message) {
  if (!message) return std::move(message).error();
  return LauncherMessage(std::move(*message));
}

std::string type_of(const Frame& frame) {
  return "frame of type " + std::to_string(static_cast<int>(frame.type));
}

// The frames that are a few numbers. Braces evaluate them from left to right, as they lie in the
// payload. Nothing for a type that is none of these.
std::optional<LauncherMessage> read_numbers(FrameType type, Numbers& in) {
  switch (type) {
    case FrameType::kTerminate:
      return TerminateRanks{in.time(), in.is_empty() ? SIGTERM : in.signal()};
    case FrameType::kEndRank:
      return TerminateRank{in.rank(), in.time()};
    case FrameType::kSignal:
      return SignalRanks{in.signal()};
    case FrameType::kSignalRank:
      return SignalRank{in.rank(), in.signal()};
    case FrameType::kDump:
      return DumpStacks{in.time()};
    case FrameType::kOutputAck:
      return OutputTaken{in.next()};
    case FrameType::kInputEnd:
      return RankInputEnd{in.rank()};
    case FrameType::kRelayTaken:
      return RelayedBytesTaken{in.next()};
    default:
      return std::nullopt;
  }
}

}  // namespace

Result<LauncherMessage> read_launcher_frame(Frame frame) {
  switch (frame.type) {
    case FrameType::kHeartbeat:
      return LauncherMessage(LauncherAlive{});
    case FrameType::kPart:
    case FrameType::kShipFile:
    case FrameType::kData:
    case FrameType::kDataEnd:
      return LauncherMessage(DeliveryFrame{std::move(frame)});
    case FrameType::kTree:
      return as_launcher_message(decode_offer_tree(frame.payload));
    case FrameType::kKeep:
      return as_launcher_message(decode_keep_delivery(frame.payload));
    case FrameType::kFetch:
      return as_launcher_message(decode_fetch_delivery(frame.payload));
    case FrameType::kForget:
      return LauncherMessage(ForgetDeliveries{std::move(frame.payload)});
    case FrameType::kRelay:
      return LauncherMessage(OpenRelay{std::move(frame.payload)});
    case FrameType::kProbe:
      return as_launcher_message(decode_probe(frame.payload));
    case FrameType::kOrder:
      return as_launcher_message(decode_host_order(frame.payload));
    case FrameType::kStart:
      return LauncherMessage(StartRanks{});
    case FrameType::kSuspend:
      return LauncherMessage(SuspendRanks{});
    case FrameType::kResume:
      return LauncherMessage(ResumeRanks{});
    default:
      break;
  }
  Numbers numbers(frame.payload);
  std::optional<LauncherMessage> message;
  if (frame.type == FrameType::kInput) {
    message = RankInput{numbers.rank(), {}};
  } else if (frame.type == FrameType::kRelayData) {
    message = RelayedBytes{numbers.next(), {}};
  } else {
    message = read_numbers(frame.type, numbers);
  }
  const std::string type = type_of(frame);
  if (!message) {
    return make_error(ErrorCode::kFailed, "a " + type + ", which no launcher sends");
  }
  if (!numbers.good()) return make_error(ErrorCode::kFailed, "a malformed " + type);
  // Not copied: input may be large.
  if (auto* input = std::get_if<RankInput>(&*message)) input->payload = std::move(frame.payload);
  if (auto* relayed = std::get_if<RelayedBytes>(&*message)) {
    relayed->payload = std::move(frame.payload);
  }
  return std::move(*message);
}

}  // namespace hora::launcher
