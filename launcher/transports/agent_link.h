// SPDX-License-Identifier: Apache-2.0
// One host's stream: between the supervisor's socketpair and the stdin and stdout of a command on
// that host, whatever carries them (an ssh channel, a child process).
//
// It leads the bootstrap conversation (sends the agent on request), filters out what the remote
// shell printed, has a broken cached agent replaced once, and from then on moves bytes both ways
// through bounded queues. If no agent can be started, it writes the failure instead.
// Lives on one event loop's thread, as its carrier does.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/protocol/messages.h"
#include "launcher/transports/bootstrap.h"
#include "launcher/transports/pacing.h"
#include "launcher/transports/remote_command.h"
#include "launcher/transports/supervisor_socket.h"
#include "launcher/transports/transport.h"
#include "rendezvous/os/event_loop.h"
#include "rendezvous/os/fd.h"

namespace hora::launcher {

// The bytes of the agents that hosts lack. Each file is read once, when the first host asks for it,
// and shared by all hosts. Thread-safe; the first call takes some milliseconds.
class AgentPayloads {
 public:
  using Bytes = std::shared_ptr<const std::string>;
  struct Payload {
    Bytes bytes;
    bool gzip = false;
  };
  // The agent at `path`. Packed, if the host takes that and the build has left a packed copy.
  Result<Payload> get(const std::string& path, bool takes_gzip);

 private:
  struct Agent {
    Bytes raw, packed;  // packed: null where there is none
  };
  static Result<Agent> read(const std::string& path);

  std::mutex mutex_;
  std::map<std::string, Agent> agents_;  // by path
};

// Where the frames of a passing stream end, so that a frame of ours can follow a whole one.
class FrameBoundaries {
 public:
  void pass(std::string_view bytes);

  // All bytes so far are whole frames.
  bool between_frames() const { return left_ == 0 && header_.empty(); }
  // The last frame that began has the reason why its sender ends.
  bool has_last_frame() const {
    return last_type_ == FrameType::kGoodbye || last_type_ == FrameType::kFailure;
  }

 private:
  std::string header_;    // of the next frame, as far as it is there
  std::size_t left_ = 0;  // of the payload that is passing
  FrameType last_type_ = FrameType::kHeartbeat;
};

struct AgentLinkOptions {
  std::string host;  // for messages: "node3 (10.0.0.3:22)"; may be refined by set_host()
  int host_index = 0;
  AgentImage image;
  AgentPayloads* payloads = nullptr;  // outlives the link
  StageObserver observer;
  std::string_view lost_class;   // failure class: the carrier broke before the agent started
  std::string_view shell_class;  // failure class: the command ended before the agent started
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
    // Nothing is left to do: the supervisor has closed its end, or has received the failure.
    virtual void link_finished() = 0;
  };

  AgentLink(os::EventLoop& loop, os::Fd local, AgentLinkOptions options, Carrier& carrier);
  AgentLink(const AgentLink&) = delete;
  AgentLink& operator=(const AgentLink&) = delete;

  Status open();
  void set_host(std::string host) { options_.host = std::move(host); }

  // The line that starts the agent. Another one after link_restarts().
  Result<std::string> command_line(bool for_sh = false) const {
    return bootstrap_line(request(for_sh));
  }
  // bootstrap_words() of it; none when the agent in the cache will not do.
  std::vector<std::string> cached_words() const;

  // --- from the remote command ---
  // How many bytes of its stdout there is room for; more would be kept all the same.
  std::size_t room() const;
  bool overfull() const;  // even a carrier that cannot wait must not bring more
  void on_remote_output(std::string_view bytes);
  void on_remote_errors(std::string_view bytes);  // its stderr, of which the end is kept
  const std::string& errors() const { return attempt_.errors; }
  void clear_errors() { attempt_.errors.clear(); }
  void on_remote_end(const RemoteEnd& end);  // after the last byte of its output

  // --- to the remote command ---
  std::string_view outgoing() const { return to_remote_.front(); }
  void sent(std::size_t count);
  // All of outgoing() is sent and nothing will follow: close its stdin.
  bool wants_end_of_input() const;

  // Gives the supervisor's stream to another link, and ends this one. Only before the command runs.
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
    bool forced;    // the cached agent is not used
    int needs = 0;  // how often the host has asked for the agent
    std::string greeting;
    std::string errors;  // the last of its stderr
  };

  BootstrapRequest request(bool for_sh = false) const;
  void on_supervisor(std::uint32_t events);
  void write_to_supervisor();
  void watch_supervisor();
  void finish();
  void follow_dialogue(std::string_view bytes);
  void on_need(const BootstrapDialogue::Need& need);
  void on_greeting();
  void pass_on(std::string_view bytes);
  void restart(std::string_view why);
  void fail_before_start(const RemoteEnd& end);
  void append_failure(Failure failure);
  void linger();
  void notify();
  void deliver();

  SupervisorSocket supervisor_;
  AgentLinkOptions options_;
  Carrier& carrier_;
  State state_ = State::kBootstrap;

  Attempt attempt_;
  bool restarting_ = false;  // the carrier is about to run the command again
  OutgoingBytes to_remote_;  // without the agent while kRunning
  FrameBoundaries frames_;   // of what passed to the supervisor

  bool finished_ = false;
  Timer notice_;  // to the carrier
  Timer linger_;
};

}  // namespace hora::launcher
