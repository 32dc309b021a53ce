// One host's stream: between the supervisor's socketpair and the stdin and stdout of a command on
// that host, whatever carries them (an ssh channel, a child process).
//
// It leads the bootstrap conversation (ships the agent when asked), takes away what the remote
// shell printed, has a broken cached agent replaced once, and from then on moves bytes both ways
// through bounded queues. When no agent can be had it writes the failure in its place.
// Lives on one event loop's thread, as its carrier does.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "launcher/protocol/messages.h"
#include "launcher/transports/agent_payload.h"
#include "launcher/transports/bootstrap.h"
#include "launcher/transports/byte_queue.h"
#include "launcher/transports/remote_end.h"
#include "launcher/transports/transport.h"
#include "rendezvous/os/event_loop.h"
#include "rendezvous/os/fd.h"

namespace hora::launcher {

struct AgentLinkOptions {
  std::string host;  // for messages: "node3 (10.0.0.3:22)"; may be refined by set_host()
  int host_index = 0;
  AgentImage image;
  std::shared_ptr<AgentPayload> payload;
  StageObserver observer;
  std::string_view lost_class;   // failure class: the carrier itself broke before an agent spoke
  std::string_view shell_class;  // failure class: the command ended before an agent spoke
  std::string shell_advice;
};

class AgentLink {
 public:
  // What carries the bytes. Calls come from the loop's thread and never from inside a call that
  // the carrier makes; the link must outlive them.
  class Carrier {
   public:
    virtual ~Carrier() = default;
    // outgoing(), room() or wants_end_of_input() changed.
    virtual void link_changed() = 0;
    // Run command_line() again, in place of the command that runs now.
    virtual void link_restarts() = 0;
    // Nothing more is to be done: the supervisor closed its end, or has been told the failure.
    virtual void link_finished() = 0;
  };

  AgentLink(os::EventLoop& loop, os::Fd local, AgentLinkOptions options, Carrier& carrier);
  ~AgentLink();
  AgentLink(const AgentLink&) = delete;
  AgentLink& operator=(const AgentLink&) = delete;

  Status open();
  void set_host(std::string host) { options_.host = std::move(host); }
  const std::string& host() const { return options_.host; }

  // The line that starts the agent. Another one after link_restarts().
  Result<std::string> command_line() const;

  // --- from the remote command ---
  // How many bytes of its stdout are welcome now; more would be kept all the same.
  std::size_t room() const;
  bool overfull() const;  // even a carrier that cannot help it must not bring more
  void on_remote_output(std::string_view bytes);
  void on_remote_errors(std::string_view bytes);  // its stderr: the last of it is kept for messages
  void on_remote_end(const RemoteEnd& end);       // after the last byte of its output

  // --- to the remote command ---
  std::string_view outgoing() const;
  void sent(std::size_t count);
  // All of outgoing() is sent and nothing will follow: close its stdin.
  bool wants_end_of_input() const;

  // Puts the failure into the stream and ends it.
  void fail(const Failure& failure);
  void report(Stage stage, std::string_view detail = {}) const;

  bool agent_started() const { return state_ >= State::kRunning; }
  bool ended() const { return state_ >= State::kEnding; }

 private:
  enum class State {
    kBootstrap,  // no magic yet
    kGreeting,   // the agent's first frame is being read
    kRunning,    // bytes pass
    kEnding,     // only what is queued for the supervisor is left
    kClosed,
  };

  void on_local_io(std::uint32_t events);
  void read_local(std::size_t limit);
  void write_local();
  void watch_local();
  void finish();
  void follow_dialogue(std::string_view bytes);
  void on_need(const BootstrapDialogue::Need& need);
  void on_payload(bool gzip, Result<AgentPayload::Bytes> bytes);
  void on_greeting();
  void pass_on(std::string_view bytes);
  void restart(std::string_view why);
  void fail_before_start(const RemoteEnd& end);
  void append_failure(const Failure& failure);
  std::string remote_words() const;
  void linger();
  void notify();
  void deliver();

  os::EventLoop& loop_;
  os::Fd local_;
  AgentLinkOptions options_;
  Carrier& carrier_;
  State state_ = State::kBootstrap;
  bool watching_ = false;
  std::uint32_t watched_events_ = 0;
  bool local_at_end_ = false;  // the supervisor will write nothing more
  bool local_gone_ = false;    // nor read

  std::string nonce_;
  BootstrapDialogue dialogue_;
  bool forced_ = false;
  int needs_ = 0;
  bool restarting_ = false;  // the carrier has not been told yet
  std::string greeting_;
  std::string errors_;

  ByteQueue to_remote_;
  AgentPayload::Bytes payload_;  // goes out behind to_remote_; none while running
  std::size_t payload_position_ = 0;
  ByteQueue to_local_;

  // Where the passing frames end, so that a failure can be put behind a whole one.
  std::string frame_header_;
  std::size_t frame_left_ = 0;
  std::uint8_t last_frame_type_ = 0;

  bool notify_posted_ = false;
  bool finished_ = false;
  os::EventLoop::TimerId linger_timer_ = 0;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // told false by the destructor
};

}  // namespace hora::launcher
