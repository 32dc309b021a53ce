// SPDX-License-Identifier: Apache-2.0
// The launcher's side of the conversation with one agent: the agent's bytes in, messages out that
// are complete, in turn and within their limits. [pure] Nothing from a host is trusted that does
// not come through here. An agent's allowed messages depend on the previous ones in both
// directions: a frame that is out of turn, or too long, is refused by its header, before its
// payload is kept. The first violation ends the conversation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "launcher/protocol/frame.h"
#include "launcher/protocol/messages.h"

namespace hora::launcher {

// Its order is prepared.
struct AgentReady {
  std::string bundle;  // where the runtime lies on the host; empty where its ranks get none
};
// Of a job that was ended: nothing of it runs there any more, but its output is not all sent.
struct RanksGone {};
struct AgentSuspended {};  // its ranks have been stopped
struct RankOutput {
  int rank = 0;
  int stream = 0;  // 1 stdout, 2 stderr
  std::string payload;
  std::string_view bytes() const { return std::string_view(payload).substr(kHead); }

  static constexpr std::size_t kHead = 5;  // rank and stream
};
struct RankOutputEnd {
  int rank = 0;
  int stream = 0;
};
struct InputTaken {
  int rank = 0;
  std::size_t bytes = 0;
};
// How many ranks of the host, of those that use the runtime, ...
struct RankProgress {
  std::uint32_t meeting = 0;  // have begun to meet the others
  std::uint32_t joined = 0;   // have met them
  std::uint32_t worked = 0;   // have come through a collective
};

// Of a connection to the rendezvous that the agent carries (kRelayPort and the frames after it).
struct RelayFrame {
  FrameType type = FrameType::kRelayPort;
  std::uint32_t number = 0;  // of the connection; the port
  std::string payload;
  std::string_view bytes() const { return std::string_view(payload).substr(kHead); }

  static constexpr std::size_t kHead = 4;
};

// Heartbeats are not messages: received bytes say as much.
using AgentMessage =
    std::variant<Hello, ProbeResult, AgentReady, Started, RankOutput, RankOutputEnd, RankExit,
                 InputTaken, RankProgress, StackReport, GpuFault, DeliveryReport, TreeState,
                 RanksGone, AgentSuspended, LogLine, RelayFrame, Failure, Goodbye>;

class AgentConversation {
 public:
  // Bytes after the agent's magic.
  void feed(std::string_view bytes);
  // The next message; nothing when more bytes are needed, or when the agent has sent its goodbye.
  // The Error says what is wrong; do not call it again after that.
  Result<std::optional<AgentMessage>> next();

  // Notes the frames sent to it that have an answer or give a credit.
  void sent(FrameType type, std::string_view payload);
  void sent(const Probe& probe);
  void sent(const OfferTree& tree);
  void sent(const KeepDelivery& keep);
  void sent(const FetchDelivery& fetch);
  void sent(const HostOrder& order);

  // What its last message was: "heartbeat".
  std::string_view last_words() const;
  // Bytes that wait for the rest of their frame.
  std::size_t buffered() const { return frames_.buffered(); }

 private:
  struct Rank {
    bool ended[2] = {false, false};  // stdout, stderr
    bool exited = false;
    std::size_t input = 0;  // bytes on their way to it
  };

  Status admit(const FrameHeader& header) const;
  bool has_turn(FrameType type) const;
  std::size_t longest(FrameType type) const;
  Result<AgentMessage> read(Frame frame);
  Result<AgentMessage> read_probe_result(std::string_view payload);
  Result<AgentMessage> read_started(std::string_view payload);
  Result<AgentMessage> read_output(std::string payload);
  Result<AgentMessage> read_output_end(std::string_view payload);
  Result<AgentMessage> read_exit(std::string_view payload);
  Result<AgentMessage> read_input_taken(std::string_view payload);
  Result<AgentMessage> read_progress(std::string_view payload);
  Result<AgentMessage> read_relay(Frame frame);
  Result<AgentMessage> read_stacks(std::string_view payload);
  Result<AgentMessage> read_delivery_report(std::string_view payload);
  Result<AgentMessage> read_tree_state(std::string_view payload);
  Result<AgentMessage> read_gpu_fault(std::string_view payload);
  Result<Rank*> rank_of(std::string_view& payload, int& rank);

  FrameReader frames_;
  bool greeted_ = false;
  bool over_ = false;                              // it has said goodbye
  std::optional<Probe> probe_;                     // that waits for its answer
  std::optional<OfferTree> tree_;                  // that waits for its answer
  std::map<std::string, std::size_t> deliveries_;  // without their reports: how many sources each
  bool ordered_ = false;
  bool start_sent_ = false;
  struct {
    bool ready = false;
    bool started = false;
    bool ranks_gone = false;
  } said_;
  std::map<int, Rank> ranks_;  // of the order
  std::size_t output_credit_ = 0;
  bool relay_asked_ = false;
  bool relay_open_ = false;
  int dumps_ = 0;     // questions that wait for their answers
  int suspends_ = 0;  // likewise
  std::size_t log_lines_ = 0;
  std::size_t gpu_faults_ = 0;
  FrameType last_ = FrameType::kHello;
};

}  // namespace hora::launcher
