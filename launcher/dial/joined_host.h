// SPDX-License-Identifier: Apache-2.0
// One use of a machine that has dialled: a command there, and the bytes between it and the host's
// link. Lives on the thread of the server's event loop.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "launcher/dial/dial_stream.h"
#include "launcher/transports/agent_link.h"
#include "rendezvous/base/time.h"

namespace hora::launcher {

class JoinedHost : private AgentLink::Carrier {
 public:
  using Done = std::function<void()>;

  // `stream` is the machine's, whose frames come by on_frame(); nullptr: it has left. `number` is
  // one that no earlier command there had. `done` is called once, when nothing is left to do; it
  // may not destroy the object at once. `starts_agents`: the machine has a helper of this version,
  // which knows kStart.
  JoinedHost(os::EventLoop& loop, os::Fd local, AgentLinkOptions options, DialStream* stream,
             std::uint32_t number, bool starts_agents, Clock::time_point deadline, Done done);
  ~JoinedHost() override;

  void begin();
  void on_frame(const DialFrame& frame);
  void on_room() { pump(); }
  // The machine is gone; its stream is not used any more.
  void on_lost(const std::string& why);

  std::uint32_t number() const { return number_; }

 private:
  void link_changed() override;
  void link_restarts() override;
  void link_finished() override;

  void run();
  void stop();
  void pump();

  AgentLink link_;
  DialStream* stream_;
  std::uint32_t number_;
  const bool starts_agents_;
  Clock::time_point deadline_;
  Done done_;
  bool running_ = false;
  bool input_ended_ = false;
  Timer start_timer_;
};

}  // namespace hora::launcher
