// SPDX-License-Identifier: Apache-2.0
// One host reached by libssh: from its name to a running agent, then the bytes between the channel
// and the host's link. A state machine on one event loop's thread; it never waits.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "launcher/process/piped_child.h"
#include "launcher/transports/agent_link.h"
#include "launcher/transports/pacing.h"
#include "launcher/transports/ssh_client.h"
#include "launcher/transports/ssh_target.h"
#include "launcher/transports/tcp_connector.h"
#include "rendezvous/base/time.h"

namespace hora::launcher {

class SshHost : private AgentLink::Carrier {
 public:
  // Takes the stream over: the ssh program does what libssh cannot, for this reason. `done`
  // follows.
  using ByProgram = std::function<void(os::Fd supervisor, const std::string& why)>;

  // What a host has of its transport.
  struct Transport {
    BlockingCalls* resolver = nullptr;  // outlives it
    std::shared_ptr<FanOut> fan_out;
    bool hosts_come_late = false;  // absent hosts are tried again, until the deadline
    // Called once, when nothing is left to do; it may not destroy the object at once.
    std::function<void(SshHost*)> done;
    ByProgram by_program;  // empty: there is no ssh program
  };

  SshHost(os::EventLoop& loop, os::Fd local, AgentLinkOptions options, SshTarget target,
          Transport transport);
  ~SshHost() override { close_connection(); }

  // `deadline` is that of the whole start, all retries and the time in the queue included.
  void begin(Clock::time_point deadline);

 private:
  enum class State {
    kQueued,      // for a place in the fan-out
    kConnecting,  // resolving, then TCP; or a proxy command
    kHandshake,   // banners, key exchange
    kAuthenticate,
    kExecute,  // channel and command
    kRunning,  // the command runs: bootstrap, then the agent
    kBackOff,  // the host is not there yet, or too busy; another try follows
    kClosing,  // the link is over; the last bytes leave
    kOver,
  };

  void link_changed() override;
  void link_restarts() override;
  void link_finished() override;

  void connect();
  void connect_by_proxy();
  void on_connected(TcpConnector::Outcome outcome);
  void open_client(os::Fd socket, const std::string& endpoint);
  void step();
  bool step_handshake();
  bool step_authenticate();
  bool step_execute();
  bool accept_host_key();
  void save_host_key(const SshHostKey& key);
  void pump();
  bool send_input();
  bool may_take_in() const;
  void settle_end();
  void report_end();
  void update_watch();
  void close_connection();
  void finish();

  void set_stage_limit(Milliseconds limit);
  void on_stage_limit();
  void on_deadline();
  void fail_or_wait(Failure failure, const std::string& why);
  Milliseconds back_off();
  void retry_when_busy();
  void fail_as_busy(int refusals);
  void queue();
  void fail(const Failure& failure);
  void fail_or_go_by_program(const Failure& failure, const std::string& why);
  void fail(std::string_view failure_class, const std::string& what,
            const std::string& advice = {});
  std::string proxy_words();

  os::EventLoop& loop_;
  AgentLink link_;
  SshTarget target_;
  Transport transport_;

  State state_ = State::kQueued;
  FanOut::Permit permit_;
  BackOff back_off_;
  // Of the last attempt that failed:
  std::string busy_words_;          // what a busy server printed
  std::optional<Failure> absence_;  // why the host could not be reached
  std::unique_ptr<TcpConnector> connector_;
  PipedChild proxy_;
  SshClient::Keys keys_;
  std::unique_ptr<SshClient> client_;
  Watch watch_{loop_};  // of the client's descriptor
  bool input_closed_ = false;

  Timer stage_limit_{loop_};
  Timer deadline_{loop_};
  Timer exit_timer_{loop_};
  Timer again_{loop_};  // there is more to do in the loop's next turn
};

}  // namespace hora::launcher
