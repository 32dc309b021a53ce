// SPDX-License-Identifier: Apache-2.0
// Chooses the transport for a host, and starts an agent there.
#pragma once

#include <memory>

#include "launcher/build/bundle.h"
#include "launcher/plan/job_spec.h"
#include "launcher/transports/transport.h"
#include "rendezvous/base/result.h"
#include "rendezvous/base/time.h"
#include "rendezvous/os/fd.h"

namespace hora::launcher {

class HostConnector {
 public:
  // `observer` is called from any thread. `spec` and `installation` must outlive this object.
  // `make_remote` makes what reaches the hosts; none: `spec.transport` says.
  HostConnector(const JobSpec& spec, const Installation& installation, bool several_hosts,
                MakeTransport make_remote, StageObserver observer);

  // Those that lack the agent ask there from now on. It outlives this object.
  void share_agents_by(AgentSharing& sharing) { image_.sharing = &sharing; }

  // Never blocks; the stream tells of success and failure (transport.h). `alone`: there is no other
  // host; if it is this machine, its agent and we keep together on one CPU until leave_cpu().
  // `ordered`: on this machine, the agent starts with proceed(), when its order is in the stream.
  struct How {
    bool same_machine = false;
    bool alone = false;
    bool ordered = false;
  };
  Result<os::Fd> connect(const Host& host, int host_index, How how, Clock::time_point deadline);
  void proceed();
  bool is_on_one_cpu() const { return one_cpu_ != nullptr; }
  void leave_cpu() { one_cpu_.reset(); }

 private:
  Transport& transport_for(bool same_machine);

  const JobSpec& spec_;
  AgentImage image_;
  std::unique_ptr<OneCpu> one_cpu_;
  MakeTransport make_remote_;
  StageObserver observer_;
  std::unique_ptr<Transport> local_;  // each is made when the first host needs it
  std::unique_ptr<Transport> remote_;
};

}  // namespace hora::launcher
