// SPDX-License-Identifier: Apache-2.0
// Chooses the transport for a host and starts an agent there; whether a host is this machine, and
// what an agent on it would say.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/machine/host_facts.h"
#include "launcher/parts/bundle.h"
#include "launcher/plan/host_list.h"
#include "launcher/plan/job_spec.h"
#include "launcher/protocol/messages.h"
#include "launcher/transports/transport.h"
#include "rendezvous/base/result.h"
#include "rendezvous/base/time.h"
#include "rendezvous/os/fd.h"

namespace hora::launcher {

// Whether a host of the list is this machine, and what an agent on this machine would say of it.

// Is a host of the list this very machine? Blocks for as long as the system's resolver does.

// For each host: true when its name is, or resolves to, an address of this machine, and no other
// user is asked for. Names that need a resolver are looked up side by side; one that cannot be
// resolved is remote (it may be an alias of ~/.ssh/config).
std::vector<bool> find_local_hosts(const std::vector<Host>& hosts);

// The same by the name alone, without a resolver: misses this machine under another name.
bool is_named_as_this_machine(const Host& host);

// Whether each name stands for a machine. A batch system may have several nodes on one, and a
// command of the user's own (--rsh) decides what a host is: a container, another root, an account.
bool hosts_are_machines(const JobSpec& spec);

// The error of a list that has one machine under several names. `hellos` are those of `hosts`; one
// that is missing is not compared.
Status check_one_name_each(const std::vector<Host>& hosts,
                           const std::vector<std::optional<Hello>>& hellos);

// The Hello that an agent on this machine would send to a job without other hosts. Asking it costs
// a round trip before the ranks can start, and the same look-ups.

struct PresumedHello {
  Hello hello;        // without pid; of the interfaces it has loopback, which such a job uses
  ReservedPort port;  // hello.free_port
};

// Nothing where this machine has no usable loopback interface, or no port.
std::optional<PresumedHello> presume_hello();

// Chooses the transport for a host, and starts an agent there.

class HostConnector {
 public:
  // `observer` is called from any thread. `spec` and `installation` must outlive this object.
  // `make_remote` makes what reaches the hosts; none: `spec.transport` says.
  HostConnector(const JobSpec& spec, const Installation& installation, bool several_hosts,
                MakeTransport make_remote, StageObserver observer);

  // Never blocks; the stream reports success and failure (transport.h). `alone`: there is no other
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
