// SPDX-License-Identifier: Apache-2.0
// Which addresses of a host really lead to it? Every agent listens and sends its nonce to each
// client; every agent connects to the given addresses and checks whether the right nonce answers.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "launcher/protocol/messages.h"
#include "rendezvous/base/result.h"
#include "rendezvous/net/acceptor.h"
#include "rendezvous/os/event_loop.h"
#include "rendezvous/os/fd.h"

namespace hora::launcher {

// Answers probes until it is destroyed.
class ProbeListener {
 public:
  static Result<std::unique_ptr<ProbeListener>> create(os::EventLoop& loop);

  int port() const { return acceptor_.port(); }
  const std::string& nonce() const { return nonce_; }

 private:
  ProbeListener(os::EventLoop& loop, os::Fd socket);

  std::string nonce_;
  net::Acceptor acceptor_;
};

// One round of probes; all addresses at a time, within one deadline.
class Prober {
 public:
  Prober(os::EventLoop& loop, const Probe& probe, std::function<void(ProbeResult)> on_done);
  ~Prober();
  Prober(const Prober&) = delete;
  Prober& operator=(const Prober&) = delete;
  void start();

 private:
  struct Attempt {
    std::size_t answer = 0;  // index in result_.answers
    int port = 0;
    std::string nonce;
    os::Fd socket;
    std::string received;
    bool connected = false;
    bool done = false;
  };
  void begin(Attempt& attempt);
  void begin_waiting();
  void on_event(Attempt& attempt);
  void settle(Attempt& attempt, bool reached, std::string error);
  void finish_if_done();

  os::EventLoop& loop_;
  std::function<void(ProbeResult)> on_done_;
  ProbeResult result_;
  std::vector<std::unique_ptr<Attempt>> attempts_;
  std::deque<Attempt*> waiting_;  // for one of the sockets that may be open at a time
  std::size_t open_ = 0;
  std::size_t left_ = 0;
  int timeout_ms_;
  os::EventLoop::TimerId timer_ = 0;
};

}  // namespace hora::launcher
