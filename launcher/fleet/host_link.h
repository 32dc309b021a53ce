// SPDX-License-Identifier: Apache-2.0
// The launcher's end of the byte stream to one host's agent: messages in, frames out, silence seen.
// Lives on the event loop's thread. Owns the fd; closing it ends the agent.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "launcher/fleet/fleet_event.h"
#include "launcher/protocol/agent_conversation.h"
#include "launcher/protocol/silence.h"
#include "rendezvous/base/result.h"
#include "rendezvous/os/event_loop.h"
#include "rendezvous/os/fd.h"

namespace hora::launcher {

class HostLink {
 public:
  struct Handlers {
    std::function<void(FleetEvent)> on_event;
    // One of these two, once, never after close(); the link is closed then.
    // The agent said what it may not say.
    std::function<void(std::string what)> on_violation;
    // The stream ended or broke. `detail` says how, and holds what the remote shell printed when no
    // agent ever answered.
    std::function<void(std::string detail)> on_end;
    // Few queued bytes are left.
    std::function<void()> on_room = {};
  };

  HostLink(os::EventLoop& loop, os::Fd fd, Handlers handlers);
  ~HostLink();
  HostLink(const HostLink&) = delete;
  HostLink& operator=(const HostLink&) = delete;

  Status open();  // starts watching

  // Queues a message; never blocks. Messages go out in order, at the end of the loop's turn.
  // Ignored after close().
  template <Framed Message>
  void send(const Message& message) {
    conversation_.sent(message);  // it only accepts answers to what was sent
    queue(Message::kRule.type, encode(message));
  }
  // The last one: later messages are ignored.
  void send_last(const LeaveHost& leave) {
    send(leave);
    last_queued_ = true;
  }
  // Queues encoded frames that several links share.
  void send_shared(std::shared_ptr<const std::string> frames);
  void read_now();  // what has come, without a turn of the loop; as in one, handlers are called
  std::size_t queued_bytes() const { return queued_bytes_; }
  std::uint64_t written_bytes() const { return written_bytes_; }
  // Some of it has been written; the agent may have it.
  bool has_sent_order() const { return order_at_ && written_bytes_ > *order_at_; }

  Silence& silence() { return silence_; }
  const Silence& silence() const { return silence_; }
  // Of the last message: "heartbeat".
  std::string_view last_words() const { return conversation_.last_words(); }
  bool is_open() const { return fd_.valid(); }
  void close();

 private:
  void queue(FrameType type, std::string_view payload);
  void write_later();
  void on_io(std::uint32_t events);
  bool read_some();  // false when the link ended
  void write_some();
  void update_watch();
  void end(std::string detail);
  std::string shell_noise() const;

  os::EventLoop& loop_;
  os::Fd fd_;
  std::shared_ptr<const Handlers> handlers_;  // every caller holds them: it may destroy this link
  MagicFinder magic_;
  bool magic_seen_ = false;
  AgentConversation conversation_;
  std::deque<std::shared_ptr<const std::string>> out_;
  std::string tail_;  // small frames collect here until they are written
  std::size_t out_position_ = 0;
  std::size_t queued_bytes_ = 0;
  std::uint64_t written_bytes_ = 0;
  std::optional<std::uint64_t> order_at_;  // where the first one begins in all that is written
  bool last_queued_ = false;
  bool wants_write_ = false;
  bool write_deferred_ = false;
  Silence silence_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // set to false by close()
};

}  // namespace hora::launcher
