// SPDX-License-Identifier: Apache-2.0
// The key-value server over HTTP.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "rendezvous/base/address.h"
#include "rendezvous/base/result.h"
#include "rendezvous/http/reader.h"
#include "rendezvous/kv_service.h"
#include "rendezvous/net/stream.h"
#include "rendezvous/os/event_loop.h"

namespace hora::rendezvous {

// Where the key-value server listens, and its limits. Read by the server and by its connections.

struct KvServerOptions {
  // Where to listen. Port 0 asks for a free one; all addresses with port 0 get the same.
  std::vector<Endpoint> addresses;
  net::AcceptStream make_stream = {};  // none: HTTP as it is
  // 0: what the limit of open files leaves, at most 16,384.
  std::size_t max_connections = 0;
  // Connections that have not yet authenticated, at most half of all; beyond that some are closed
  // (unauthenticated_peers.h). So each can authenticate until as many others have come: under TLS,
  // where each costs a signature, about a quarter of a second.
  std::size_t max_unauthenticated = 1'024;
  http::ReadLimits read_limits;
  // A request's head must be there so soon after its first byte; its body as long after that as
  // its length takes at `least_rate`.
  std::chrono::milliseconds request_timeout{10'000};
  std::size_t least_rate_bytes_per_second = 16 * 1024;
  std::chrono::milliseconds write_timeout{30'000};  // without a byte taken by the peer
  std::chrono::milliseconds idle_timeout{300'000};  // between two requests
  std::chrono::milliseconds drain_timeout{2'000};
  std::chrono::milliseconds sweep_interval{1'000};  // how exact these times are
  // A connection with more waiting to be sent is not read from.
  std::size_t write_buffer_bytes = 1u << 20;
};

// The key-value service on the network: HTTP over TCP, on the event loop of its owner.

class KvServer {
 public:
  // Listens at once. `loop` and `service` must outlive the server; all calls are the loop's
  // thread's.
  static Result<std::unique_ptr<KvServer>> start(os::EventLoop& loop, KvService& service,
                                                 KvServerOptions options);
  ~KvServer();  // closes every connection
  KvServer(const KvServer&) = delete;
  KvServer& operator=(const KvServer&) = delete;

  // As bound: with the real ports, in the order of the options.
  const std::vector<Endpoint>& addresses() const;
  // Listens on this address, too, at the port of the first one. Nothing to do when it does already.
  Status listen_also(const IpAddress& address);
  // Sends the replies that became due by a direct call of the service (set(), begin_round()).
  void deliver();

 private:
  class Impl;
  explicit KvServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace hora::rendezvous
