// SPDX-License-Identifier: Apache-2.0
// One host's stream: between the supervisor's socketpair and the stdin and stdout of a command on
// that host, whatever carries them (an ssh channel, a child process). It leads the bootstrap
// conversation (ships the agent when asked), removes the output of the remote shell, has a broken
// cached agent replaced once, and from then on moves bytes both ways through bounded queues. When
// no agent starts it writes the failure instead. Lives on one event loop's thread, as its carrier
// does.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/protocol/messages.h"
#include "launcher/transports/agent_payload.h"
#include "launcher/transports/bootstrap.h"
#include "launcher/transports/frame_boundaries.h"
#include "launcher/transports/outgoing_bytes.h"
#include "launcher/transports/remote_end.h"
#include "launcher/transports/supervisor_socket.h"
#include "launcher/transports/transport.h"
#include "rendezvous/os/event_loop.h"
#include "rendezvous/os/fd.h"

namespace hora::launcher {

struct AgentLinkOptions {
  std::string host;  // for messages: "node3 (10.0.0.3:22)"; may be refined by set_host()
  int host_index = 0;
  AgentImage image;
  std::vector<std::shared_ptr<AgentPayload>> payloads;  // of image.builds, in their order
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
    // Nothing more is to be done: the supervisor closed its end, or has received the failure.
    virtual void link_finished() = 0;
  };

  AgentLink(os::EventLoop& loop, os::Fd local, AgentLinkOptions options, Carrier& carrier);
  ~AgentLink();
  AgentLink(const AgentLink&) = delete;
  AgentLink& operator=(const AgentLink&) = delete;

  Status open();
  void set_host(std::string host) { options_.host = std::move(host); }

  // The line that starts the agent. Another one after link_restarts().
  Result<std::string> command_line(bool for_sh = false) const;
  // bootstrap_words() of it; none when the agent in the cache will not do.
  std::vector<std::string> cached_words() const;

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

  // The supervisor's stream, for another link to begin with: this one does nothing more. Only
  // before the command has run.
  os::Fd release();
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

  // One run of the command line on the host.
  struct Attempt {
    explicit Attempt(bool fresh_copy);
    std::string remote_words() const;
    std::string nonce;
    BootstrapDialogue dialogue;
    bool forced;            // the cached agent is not used
    int needs = 0;          // how often the host has asked for the agent
    bool waits = false;     // it has asked, and neither was sent it nor has fetched it
    bool has_gzip = false;  // it takes it packed
    std::size_t build = 0;  // the one that it asks for
    struct Fetching {
      bool may = false;     // the host has the commands for it
      bool cannot = false;  // and has said that it lacks programs
      int number = 0;       // of the offer that it has, and of which it has not said the end
      bool open = false;    // it has said that it begins
    } fetching;
    std::string greeting;
    std::string errors;  // the last of its stderr
  };

  BootstrapRequest request() const;
  void on_supervisor(std::uint32_t events);
  void write_to_supervisor();
  void watch_supervisor();
  void finish();
  void follow_dialogue(std::string_view bytes);
  void on_need(const BootstrapDialogue::Need& need);
  void ask_for_source();
  void on_offer(const std::optional<AgentOffer>& offer);
  void on_fetch_news(const FetchNews& news);
  void send_agent();
  void on_payload(bool gzip, Result<AgentPayload::Bytes> bytes);
  void on_greeting();
  void pass_on(std::string_view bytes);
  void restart(std::string_view why);
  void fail_before_start(const RemoteEnd& end);
  void append_failure(Failure failure);
  void linger();
  void notify();
  void deliver();

  os::EventLoop& loop_;
  SupervisorSocket supervisor_;
  AgentLinkOptions options_;
  Carrier& carrier_;
  State state_ = State::kBootstrap;

  Attempt attempt_;
  bool restarting_ = false;  // the carrier does not know of the new attempt yet
  OutgoingBytes to_remote_;  // without the agent while kRunning
  FrameBoundaries frames_;   // of what passed to the supervisor

  bool notify_posted_ = false;
  bool finished_ = false;
  os::EventLoop::TimerId linger_timer_ = 0;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // set to false by the destructor
};

}  // namespace hora::launcher
