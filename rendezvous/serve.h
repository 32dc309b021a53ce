// SPDX-License-Identifier: Apache-2.0
// Runs a rendezvous server: within a process, or until a signal ends it.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "rendezvous/base/address.h"
#include "rendezvous/base/result.h"
#include "rendezvous/contract/store_keys.h"
#include "rendezvous/kv_server.h"
#include "rendezvous/kv_service.h"
#include "rendezvous/os/event_loop.h"

namespace hora::rendezvous {

// A rendezvous in this process, on its own thread, for a job that no horarun serves.

class HostedRendezvous {
 public:
  // Listens on a free port of each address. Every request must carry the token.
  static Result<std::unique_ptr<HostedRendezvous>> start(const std::vector<IpAddress>& addresses,
                                                         std::string token);
  // The same at these ports; 0: a free one.
  static Result<std::unique_ptr<HostedRendezvous>> start(std::vector<Endpoint> endpoints,
                                                         std::string token);
  ~HostedRendezvous();
  HostedRendezvous(const HostedRendezvous&) = delete;
  HostedRendezvous& operator=(const HostedRendezvous&) = delete;

  const std::vector<Endpoint>& endpoints() const { return server_->addresses(); }

 private:
  HostedRendezvous() = default;

  std::unique_ptr<os::EventLoop> loop_;
  std::unique_ptr<KvService> service_;
  std::unique_ptr<KvServer> server_;
  std::thread thread_;
};

// The key-value server as a program of its own: `horarun rendezvous`.

struct ServeOptions {
  KvServerOptions server;  // .addresses; empty: 127.0.0.1 and a free port
  AccessPolicy access;     // with neither token nor address: every process on this machine
  KvLimits limits;
  std::vector<ScopeSize> known_scopes;
  std::optional<pid_t> end_with;  // a process whose end is ours
  // Gets the addresses once connections are taken. Empty: one line on stdout for each address,
  // "rendezvous: listening on 10.0.0.1:4000".
  std::function<void(const std::vector<Endpoint>&)> announce;
};

// Serves until SIGINT, SIGTERM or the end of `end_with`, and then returns Ok. Both signals must not
// be handled by another part of the process meanwhile; they are blocked in the calling thread and
// unblocked on return.
Status serve_rendezvous(ServeOptions options);

// The first line of a file, without blanks at its ends: what --token-file names. A file that others
// may read is accepted, an empty one is not.
Result<std::string> read_token_file(const std::string& path);

}  // namespace hora::rendezvous
