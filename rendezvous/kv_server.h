// SPDX-License-Identifier: Apache-2.0
// The key-value service on the network: HTTP over TCP, on the event loop of its owner.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "rendezvous/base/address.h"
#include "rendezvous/base/result.h"
#include "rendezvous/kv_server_options.h"
#include "rendezvous/kv_service.h"
#include "rendezvous/os/event_loop.h"

namespace hora::rendezvous {

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
  std::size_t connection_count() const;

 private:
  class Impl;
  explicit KvServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace hora::rendezvous
