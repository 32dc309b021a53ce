// SPDX-License-Identifier: Apache-2.0
// One host reached by a command of the user's: the child process, and the bytes between it and
// the host's link. Lives on one event loop's thread.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/process/piped_child.h"
#include "launcher/transports/agent_link.h"
#include "launcher/transports/back_off.h"
#include "rendezvous/base/time.h"

namespace hora::launcher {

class CommandHost : private AgentLink::Carrier {
 public:
  using Done = std::function<void(CommandHost*)>;

  // `done` is called once, when nothing is left to do; it may not destroy the object at once.
  CommandHost(os::EventLoop& loop, os::Fd local, AgentLinkOptions options, Host host,
              std::vector<std::string> command, Clock::time_point deadline, Done done);
  ~CommandHost() override;

  // Gets the command's output on stderr.
  using Listener = std::function<void(std::string_view said)>;
  void listen_to_errors(Listener listener) { listener_ = std::move(listener); }

  // The command's messages when it refuses this host for now: it is run again a few times then.
  void try_again_after(std::string refusal) { refusals_.words = std::move(refusal); }

  void begin();

  // For a transport that ends, when the loop runs no more: asks the child to end; says whether it
  // has.
  void hurry();
  bool child_has_ended() { return !running_ || child_.try_wait().has_value(); }

 private:
  void link_changed() override;
  void link_restarts() override;
  void link_finished() override;

  void run();
  void drop_child();
  void fail(const std::string& why);
  void on_deadline();
  void pump();
  void write_input();
  void read_output();
  void read_errors();
  void on_exit();
  void settle_end();
  bool is_refused_for_now() const;
  void run_later();
  void report_end();
  void ask_child_to_end();
  void finish();

  // One watched descriptor of the child.
  struct Watch {
    int fd = -1;
    bool on = false;
    std::uint32_t events = 0;
  };
  // That may pass.
  struct Refusals {
    std::string words;  // of the command; empty: unknown
    BackOff back_off;
    os::EventLoop::TimerId timer = 0;  // until it is run again
  };
  void watch(Watch& watch, int fd, std::uint32_t events, os::EventLoop::IoHandler handler);
  void rewatch(Watch& watch, std::uint32_t events);
  void unwatch(Watch& watch);

  os::EventLoop& loop_;
  AgentLink link_;
  Host host_;
  std::vector<std::string> command_;
  Clock::time_point deadline_;
  Done done_;
  Listener listener_;
  Refusals refusals_;

  PipedChild child_;
  bool running_ = false;  // there is a child whose end is not settled
  bool exited_ = false;
  bool output_at_end_ = false;
  bool finishing_ = false;  // the link is over; the child is given a moment
  std::string errors_;      // the last of its stderr
  Watch in_, out_, err_, end_;
  os::EventLoop::TimerId start_timer_ = 0;
  os::EventLoop::TimerId exit_timer_ = 0;
};

}  // namespace hora::launcher
