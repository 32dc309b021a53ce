// SPDX-License-Identifier: Apache-2.0
// A TCP connection to a host by name, on an event loop: all of its addresses are tried, the next
// one a moment after the last, and the first that answers wins.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/transports/io_threads.h"
#include "launcher/transports/pacing.h"
#include "rendezvous/base/address.h"
#include "rendezvous/os/event_loop.h"
#include "rendezvous/os/fd.h"

namespace hora::launcher {

class TcpConnector {
 public:
  struct Outcome {
    os::Fd fd;                      // non-blocking, no Nagle; invalid: it failed
    Endpoint endpoint;              // that answered
    std::string_view failed_class;  // E_RESOLVE or E_CONNECT
    std::string problem;            // "10.0.0.3:22: Connection refused"
  };
  using Done = std::function<void(Outcome)>;
  using Resolved = std::function<void(const std::string& first_endpoint)>;

  TcpConnector(os::EventLoop& loop, BlockingCalls& resolver);
  ~TcpConnector();
  TcpConnector(const TcpConnector&) = delete;
  TcpConnector& operator=(const TcpConnector&) = delete;

  // `family`: "", "inet" or "inet6". `resolved` gets the first address to be tried. Calls `done`
  // once, from the loop, never from inside start(); never after the destructor. The deadline is the
  // caller's, who destroys the connector then.
  void start(const std::string& host, int port, const std::string& family, Resolved resolved,
             Done done);

  // Where it stands, for a time-out's message: still resolving, or which addresses are silent.
  bool resolving() const { return resolving_; }
  std::string addresses_tried() const;

 private:
  struct Attempt {
    Endpoint endpoint;
    os::Fd fd;
  };
  void on_resolved(Result<std::vector<Endpoint>> endpoints);
  void try_next();
  void on_writable(int fd);
  void note_problem(const Endpoint& endpoint, const Error& error);
  void settle(Outcome outcome);
  void clear();

  os::EventLoop& loop_;
  BlockingCalls& resolver_;
  std::string family_;
  Resolved resolved_;
  Done done_;
  bool resolving_ = false;
  std::vector<Endpoint> waiting_;  // the next one last
  std::vector<Attempt> attempts_;
  std::vector<std::string> problems_;
  bool all_refused_ = true;
  Timer next_{loop_};  // address
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace hora::launcher
