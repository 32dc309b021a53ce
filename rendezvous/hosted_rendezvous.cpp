// SPDX-License-Identifier: Apache-2.0
// A rendezvous inside a worker, for jobs that another launcher started: a loop on a thread of its
// own, because the process's own threads belong to the user's program.
#include "rendezvous/hosted_rendezvous.h"

#include "rendezvous/os/service_thread.h"

namespace hora::rendezvous {

Result<std::unique_ptr<HostedRendezvous>> HostedRendezvous::start(
    const std::vector<IpAddress>& addresses, std::string token) {
  std::vector<Endpoint> endpoints;
  for (const IpAddress& address : addresses) endpoints.push_back({address, 0});
  return start(std::move(endpoints), std::move(token));
}

Result<std::unique_ptr<HostedRendezvous>> HostedRendezvous::start(std::vector<Endpoint> endpoints,
                                                                  std::string token) {
  std::unique_ptr<HostedRendezvous> self(new HostedRendezvous);
  auto loop = os::EventLoop::create();
  if (!loop) return std::move(loop).error();
  self->loop_ = std::move(*loop);
  AccessPolicy access;
  access.token = std::move(token);
  self->service_ = std::make_unique<KvService>(std::move(access), KvLimits{});
  KvServerOptions options;
  options.addresses = std::move(endpoints);
  auto server = KvServer::start(*self->loop_, *self->service_, std::move(options));
  if (!server) return std::move(server).error();
  self->server_ = std::move(*server);
  auto thread = os::start_service_thread("hora-rendezvous", [loop = self->loop_.get()] {
    // A broken epoll shows as ranks that do not come, which the others report.
    static_cast<void>(loop->run());
  });
  if (!thread) return std::move(thread).error();
  self->thread_ = std::move(*thread);
  return self;
}

HostedRendezvous::~HostedRendezvous() {
  if (!thread_.joinable()) return;
  // stop() is for the loop's own thread.
  loop_->post([loop = loop_.get()] { loop->stop(); });
  thread_.join();
}

}  // namespace hora::rendezvous
