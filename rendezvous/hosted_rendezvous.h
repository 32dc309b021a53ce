// SPDX-License-Identifier: Apache-2.0
// A rendezvous in this process, on its own thread, for a job that no horarun serves.
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "rendezvous/base/address.h"
#include "rendezvous/base/result.h"
#include "rendezvous/kv_server.h"
#include "rendezvous/kv_service.h"
#include "rendezvous/os/event_loop.h"

namespace hora::rendezvous {

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

}  // namespace hora::rendezvous
