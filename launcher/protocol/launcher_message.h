// SPDX-License-Identifier: Apache-2.0
// A launcher's messages to an agent, as values: the other half of AgentConversation. [pure] An
// agent trusts its launcher, which started it, so nothing here depends on earlier messages; only
// messages that no launcher sends are an error.
#pragma once

#include <csignal>
#include <cstddef>
#include <string>
#include <string_view>
#include <variant>

#include "launcher/protocol/frame.h"
#include "launcher/protocol/messages.h"
#include "rendezvous/base/result.h"
#include "rendezvous/base/time.h"

namespace hora::launcher {

struct LauncherAlive {};  // a heartbeat
// One frame of a bundle or a shipped file, for Staging: header, data or end.
struct DeliveryFrame {
  Frame frame;
};
struct ForgetDeliveries {
  std::string id;  // empty: all of them
};
struct StartRanks {};
// TERM, then KILL after `grace`. Another signal comes before that, and gets as much time.
struct TerminateRanks {
  Milliseconds grace{0};
  int signal = SIGTERM;
};
struct TerminateRank {
  int rank = 0;
  Milliseconds grace{0};
};
struct SignalRanks {
  int signal = 0;
};
struct SignalRank {
  int rank = 0;
  int signal = 0;
};
struct SuspendRanks {};
struct ResumeRanks {};
struct DumpStacks {
  Milliseconds timeout{0};
};
struct OutputTaken {
  std::size_t bytes = 0;
};
struct RankInput {
  int rank = 0;
  std::string payload;  // after the rank's number
  std::string_view bytes() const { return std::string_view(payload).substr(kHead); }

  static constexpr std::size_t kHead = 4;
};
struct RankInputEnd {
  int rank = 0;
};

// Connections to the rendezvous come to this address, and travel by the agent's stream.
struct OpenRelay {
  std::string address;
};
struct RelayedBytes {
  std::uint32_t number = 0;  // of the connection
  std::string payload;       // after the number; without bytes: it has ended
  std::string_view bytes() const { return std::string_view(payload).substr(kHead); }

  static constexpr std::size_t kHead = 4;
};
struct RelayedBytesTaken {
  std::uint32_t number = 0;
};

using LauncherMessage =
    std::variant<LauncherAlive, DeliveryFrame, OfferTree, KeepDelivery, FetchDelivery,
                 ForgetDeliveries, Probe, HostOrder, StartRanks, TerminateRanks, TerminateRank,
                 SignalRanks, SignalRank, SuspendRanks, ResumeRanks, DumpStacks, OutputTaken,
                 RankInput, RankInputEnd, OpenRelay, RelayedBytes, RelayedBytesTaken>;

// The Error says what was received instead: "a malformed frame of type 42".
Result<LauncherMessage> read_launcher_frame(Frame frame);

}  // namespace hora::launcher
