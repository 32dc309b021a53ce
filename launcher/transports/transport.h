// SPDX-License-Identifier: Apache-2.0
// A transport turns "this host" into one byte stream to an agent that runs there.  [interface]
//
// start() returns at once with one end of a socketpair; all the rest (connecting, authenticating,
// sending the agent, passing bytes on) happens in the background. The reader of the stream sees
//     [magic frame*]                    an agent that started, or
//     a kFailure frame after the magic  written by the transport itself when it could not,
// so a connection that fails and an agent that fails look alike. End of stream without kGoodbye
// means that the host is lost. Closing the fd ends the connection and, by that, the agent.
//
// The registry below lists the transports of this build, those of CMakeLists.txt, in its order.
// Code outside of this folder takes the name of a transport from the job.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/plan/host_list.h"
#include "launcher/plan/job_spec.h"
#include "launcher/process/one_cpu.h"
#include "launcher/startup/start_board.h"
#include "launcher/transports/bootstrap.h"
#include "rendezvous/base/result.h"
#include "rendezvous/base/time.h"
#include "rendezvous/os/fd.h"

namespace hora::launcher {

// What a transport needs to start an agent on a host.
struct AgentImage {
  std::vector<AgentBuild> builds;      // never empty; the one for this machine comes first
  std::string machines;                // what this installation has builds for, for messages
  std::string local_bundle;            // the bundle's directory on this machine
  const OneCpu* one_cpu = nullptr;     // where the launcher stays for now; null: everywhere
  std::vector<std::string> arguments;  // appended to the agent's argv on every host

  const AgentBuild& own() const { return builds.front(); }
};

// Called from any thread; must not block.
using StageObserver = std::function<void(int host_index, Stage, std::string_view detail)>;

class Transport {
 public:
  virtual ~Transport() = default;
  // Never blocks. The Error is for what is wrong before anything started (bad --rsh, no fds left).
  virtual Result<os::Fd> start(const Host& host, int host_index, const AgentImage& image,
                               Clock::time_point deadline) = 0;
};

// For hosts that a transport of the registry does not reach.
using MakeTransport = std::function<std::unique_ptr<Transport>(StageObserver observer)>;

// What the rest of the launcher knows of a transport: the last thing in the transport's file. One
// line in CMakeLists.txt adds it to the registry (docs/howto/add-transport.md).
struct TransportDescriptor {
  std::string_view name = {};  // --transport NAME; shown by --dry-run
  std::string_view how = {};   // how it reaches a host: a sentence for docs/reference/transports.md
  std::string_view options = {};  // those that it reads, for that page: "-p -i"
  bool remote = true;             // false: it reaches this machine only
  bool takes_command = false;     // --rsh COMMAND selects it
  // Called once, when the options have been read: checks them, and sets job.rsh_command if a
  // command reaches the hosts. nullptr: nothing to do. Errors: kUsage.
  Status (*configure)(JobSpec& job) = nullptr;
  // Called at most once per job, before its first host. `job` outlives the transport.
  std::unique_ptr<Transport> (*create)(const JobSpec& job, StageObserver observer) = nullptr;
};

std::unique_ptr<Transport> make_local_transport(StageObserver observer);
// `rsh_command` as rsh_argv() takes it. `fan_out`: commands without an agent yet, at one time.
// `passing_refusal`: JobSpec.
std::unique_ptr<Transport> make_command_transport(std::vector<std::string> rsh_command,
                                                  StageObserver observer, int fan_out = 64,
                                                  std::string passing_refusal = "");
#if HORA_WITH_SSH
struct SshTransportOptions {
  SshOptions ssh;
  int fan_out = 64;              // handshakes in flight at one time
  int io_threads = 0;            // 0: one per core, at most 4
  bool hosts_come_late = false;  // as in JobSpec
};
std::unique_ptr<Transport> make_ssh_transport(SshTransportOptions options, StageObserver observer);
#endif

// --- the registry --------------------------------------------------------------------------------

// The transports outlive the program.
std::span<const TransportDescriptor* const> transports();

// nullptr: there is none, or --transport cannot name it.
const TransportDescriptor* find_transport(std::string_view name);

// The one that is not remote: for hosts that are this machine.
const TransportDescriptor& local_transport();

// The one that --rsh selects.
const TransportDescriptor& command_transport();

// The table of docs/reference/transports.md.
std::string transport_reference();

}  // namespace hora::launcher
