// SPDX-License-Identifier: Apache-2.0
// The job's key-value server: where the ranks meet.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "launcher/network/network_choice.h"
#include "launcher/plan/plan.h"
#include "rendezvous/base/result.h"
#include "rendezvous/kv_server.h"
#include "rendezvous/kv_service.h"
#include "rendezvous/kv_target.h"
#include "rendezvous/os/event_loop.h"

namespace hora::launcher {

class JobRendezvous {
 public:
  // Listens on the chosen addresses only, on one free port. Lives on the loop's thread.
  static Result<std::unique_ptr<JobRendezvous>> start(
      os::EventLoop& loop, const Plan& plan, const std::vector<std::string>& listen_addresses,
      rendezvous::AccessPolicy access, net::AcceptStream make_stream = {});

  // In an elastic job: forgets the keys of the previous epoch's ranks, and expects those of this
  // plan.
  void begin_round(const Plan& plan);
  // Ranks of further hosts come to this address of ours, from these of theirs.
  Status listen_also(const std::string& address) {
    const auto parsed = parse_ip_address(address);
    return parsed ? server_->listen_also(*parsed) : Status(parsed.error());
  }
  rendezvous::KvService& service() { return service_; }
  // After calls of the service: sends the replies that became due.
  void deliver() { server_->deliver(); }

  int port() const { return server_->addresses().front().port; }

 private:
  explicit JobRendezvous(rendezvous::AccessPolicy access) : service_(std::move(access)) {}

  rendezvous::KvService service_;
  std::unique_ptr<rendezvous::KvServer> server_;
};

// Our own runtime shows the job's token, and `known` is empty. The real Horovod's workers cannot:
// they are known by their hosts' addresses, all of them, for a host may dial out by another than
// the one it is reached at.
rendezvous::AccessPolicy job_access(const std::string& token,
                                    const std::vector<HostNetwork>& known);

}  // namespace hora::launcher
