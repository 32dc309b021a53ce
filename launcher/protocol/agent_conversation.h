// SPDX-License-Identifier: Apache-2.0
// The launcher's side of the conversation with one agent: the agent's bytes in, messages out that
// are complete, in turn and within their limits. [pure] Nothing from a host is trusted that does
// not come through here. An agent's allowed messages depend on the previous ones in both
// directions: a frame that is out of turn, or too long, is refused by its header, before its
// payload is kept. The first violation ends the conversation.
//
// The rules of the messages say most of it. Here is what depends on what an agent was asked for:
// on its ranks, on the credit of output and input, on the questions that wait for answers.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "launcher/protocol/messages.h"

namespace hora::launcher {

class AgentConversation {
 public:
  // Bytes after the agent's magic.
  void feed(std::string_view bytes);
  // The next message, as one of the kinds of `Event`, which has all of AgentMessage; nothing when
  // more bytes are needed, or when the agent has sent its goodbye. The Error says what is wrong; do
  // not call it again after that.
  template <typename Event = AgentMessage>
  Result<std::optional<Event>> next();

  // Notes what is sent to it.
  template <Framed Message>
  void sent(const Message& message) {
    turns_.note_sent(Message::kRule.type);
    note(message);
  }

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

  void note(const auto&) {}
  void note(const Probe& probe) { probe_ = probe; }
  void note(const OfferTree& tree) { tree_ = tree; }
  void note(const KeepDelivery& keep) { deliveries_[keep.id] = 0; }
  void note(const FetchDelivery& fetch) { deliveries_[fetch.id] = fetch.sources.size(); }
  void note(const HostOrder& order);
  void note(const OutputTaken& taken);
  void note(const RankInput& input);

  Status admit(const FrameHeader& header) const;
  template <typename Message>
  std::size_t longest() const;
  // Whether a message fits what was asked for. Most have nothing to fit.
  Status accept(const auto&) { return Ok{}; }
  Status accept(const ProbeResult& result);
  Status accept(const Started& started);
  Status accept(const RankOutput& output);
  Status accept(const RankOutputEnd& end);
  Status accept(const RankExit& exit);
  Status accept(const InputTaken& taken);
  Status accept(const RankProgress& progress);
  Status accept(const StackReport& report);
  Status accept(const RankSamples& samples);
  Status accept(const GpuFault& fault);
  Status accept(const DeliveryReport& report);
  Status accept(const TreeState& state);
  Status accept(const Goodbye& goodbye);
  Rank* find(int rank);

  FrameReader frames_;
  Turns turns_;
  bool over_ = false;                              // it has said goodbye
  Probe probe_;                                    // the last one
  OfferTree tree_;                                 // likewise
  std::map<std::string, std::size_t> deliveries_;  // without their reports: how many sources each
  std::map<int, Rank> ranks_;                      // of the order
  std::size_t output_credit_ = 0;
  FrameType last_ = FrameType::kHello;
};

template <typename Event>
Result<std::optional<Event>> AgentConversation::next() {
  while (!over_) {
    // By the header alone, so that nothing is stored for a message that may not come.
    if (const auto header = frames_.header()) HORA_TRY(admit(*header));
    auto frame = frames_.next();
    if (!frame) return std::move(frame).error();
    if (!frame->has_value()) break;
    last_ = (*frame)->type;
    turns_.note_received(last_);
    Result<std::optional<Event>> event = std::optional<Event>();
    const bool is_event =
        visit_type(std::type_identity<AgentMessage>{}, last_,
                   [&]<typename Message>(std::type_identity<Message>) {
                     auto read = read_payload<Message>(std::move(**frame), kMostAgentItems);
                     // An agent may be any program: its texts reach the user's terminal and files.
                     if (read) *read = clean(std::move(*read));
                     const Status good = read ? accept(std::as_const(*read)) : read.error();
                     event = good ? std::optional<Event>(std::move(*read))
                                  : Result<std::optional<Event>>(good.error());
                   });
    if (is_event) return event;
  }
  return std::optional<Event>();
}

}  // namespace hora::launcher
