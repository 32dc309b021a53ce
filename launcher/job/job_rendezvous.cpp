// SPDX-License-Identifier: Apache-2.0
#include "launcher/job/job_rendezvous.h"

#include "rendezvous/contract/store_keys.h"

namespace hora::launcher {

// The token alone suffices for our runtime. The real Horovod cannot send one, so the addresses of
// the job's hosts are allowed as well.
rendezvous::AccessPolicy job_access(const std::string& token,
                                    const std::vector<HostNetwork>& known) {
  rendezvous::AccessPolicy access;
  access.token = token;
  for (const HostNetwork& host : known) {
    for (const InterfaceInfo& interface : host.interfaces) {
      if (const auto network = parse_cidr(interface.address)) access.allow.push_back(*network);
    }
  }
  return access;
}

void JobRendezvous::begin_round(const Plan& plan) {
  std::vector<rendezvous::HostRanks> counts;
  std::vector<rendezvous::RanksOfHost> ranks;
  for (const HostPlan& host : plan.hosts) {
    counts.push_back({host.host.name, static_cast<int>(host.slots.size())});
    ranks.push_back({host.host.name, {}});
    for (const Slot& slot : host.slots) ranks.back().ranks.push_back(slot.rank);
  }
  service_.begin_round(rendezvous::known_scopes(counts));
  // Only names in messages depend on it.
  static_cast<void>(service_.set(rendezvous::scope::kControl, rendezvous::kRankHostsKey,
                                 rendezvous::encode_rank_hosts(ranks)));
}

Result<std::unique_ptr<JobRendezvous>> JobRendezvous::start(
    os::EventLoop& loop, const Plan& plan, const std::vector<std::string>& listen_addresses,
    rendezvous::AccessPolicy access, net::AcceptStream make_stream) {
  // Port 0: the kernel chooses a free one, and the orders carry it.
  rendezvous::KvServerOptions options;
  options.make_stream = std::move(make_stream);
  for (const std::string& text : listen_addresses) {
    const auto address = parse_ip_address(text);
    if (!address) return address.error();
    options.addresses.push_back({*address, 0});
  }
  std::unique_ptr<JobRendezvous> meeting(new JobRendezvous(std::move(access)));
  meeting->begin_round(plan);
  auto server = rendezvous::KvServer::start(loop, meeting->service_, std::move(options));
  if (!server) return std::move(server).error();
  meeting->server_ = std::move(*server);
  return meeting;
}

}  // namespace hora::launcher
