// SPDX-License-Identifier: Apache-2.0
// Where the key-value server listens, and its limits. Read by the server and by its connections.
#pragma once

#include <chrono>
#include <cstddef>
#include <vector>

#include "rendezvous/base/address.h"
#include "rendezvous/http/reader.h"
#include "rendezvous/net/stream.h"

namespace hora::rendezvous {

struct KvServerOptions {
  // Where to listen. Port 0 asks for a free one; all addresses with port 0 get the same.
  std::vector<Endpoint> addresses;
  net::AcceptStream make_stream = {};  // none: HTTP as it is
  // 0: what the limit of open files leaves, at most 16,384.
  std::size_t max_connections = 0;
  // Connections that have not shown yet that they may use the store, at most half of all; beyond
  // that some are sent away (unauthenticated_peers.h). So each has the time in which as many others
  // come to say who it is: under TLS, where each costs a signature, some quarter of a second.
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

}  // namespace hora::rendezvous
