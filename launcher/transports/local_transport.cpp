// SPDX-License-Identifier: Apache-2.0
// This machine: an agent like any other host's, at the other end of a socketpair. Nothing is
// shipped; the agent uses the bundle where it lies.
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "launcher/plan/binding.h"
#include "launcher/process/spawn.h"
#include "launcher/transports/supervisor_socket.h"
#include "launcher/transports/transport.h"
#include "rendezvous/base/time.h"
#include "rendezvous/os/time_until.h"

namespace hora::launcher {

namespace {

// An agent has nothing left to do once its stream is closed and its job is over. The launcher does
// not wait for one that still ends its ranks within their grace period: its shim takes care of
// them.
constexpr std::chrono::milliseconds kReapTimeout{200};

// Unlike remote agents, a local one gets the bundle's path: it reads the files in place.
std::vector<std::string> agent_arguments(const AgentImage& image) {
  std::vector<std::string> arguments{image.own().path, "agent", "--launcher",
                                     std::to_string(::getpid())};
  if (!image.own().parts.empty()) {
    arguments.insert(arguments.end(), {"--parts", image.own().parts});
  }
  if (!image.local_bundle.empty()) {
    arguments.insert(arguments.end(), {"--local-bundle", image.local_bundle});
  }
  if (image.one_cpu != nullptr) {
    arguments.insert(arguments.end(),
                     {"--cpus", format_cpu_list(cpus_in(image.one_cpu->everywhere()))});
  }
  arguments.insert(arguments.end(), image.arguments.begin(), image.arguments.end());
  return arguments;
}

class LocalTransport : public Transport {
 public:
  explicit LocalTransport(StageObserver observer) : observer_(std::move(observer)) {}
  // The streams are closed by now. An agent that was stopped before it could ask the kernel to
  // continue it (launcher/agent/shim.cpp) does not see that.
  ~LocalTransport() override {
    for (const Agent& agent : agents_) ::kill(agent.pid, SIGCONT);  // not reaped: still our child
    reap_agents(kReapTimeout);
  }

  Result<os::Fd> start(const Host& host, int host_index, const AgentImage& image,
                       Clock::time_point) override {
    reap_agents({});  // the hosts of a long job may come and go
    auto pair = make_supervisor_pair(host.name);
    if (!pair) return std::move(pair).error();
    const std::string& program = image.own().path;
    std::vector<std::string> arguments = agent_arguments(image);
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    SpawnRequest request;
    request.program = program.c_str();
    request.argv = argv.data();
    request.envp = environ;
    request.stdin_fd = pair->transport->get();
    request.stdout_fd = pair->transport->get();
    request.stderr_fd = STDERR_FILENO;
    request.want_pidfd = true;
    request.resets_signals = false;  // the agent does so itself
    SpawnOutcome outcome = spawn(request);
    if (!outcome.ok()) {
      return errno_error(outcome.errnum, std::string(spawn_stage_name(outcome.failed_stage)) +
                                             " the agent " + program);
    }
    agents_.push_back({outcome.pid, std::move(outcome.pidfd)});
    if (observer_) observer_(host_index, Stage::kAgent, program);
    return std::move(pair->supervisor);
  }

 private:
  struct Agent {
    pid_t pid;
    os::Fd pidfd;  // becomes readable when it has ended; not before Linux 5.3
  };

  void reap_agents(std::chrono::milliseconds timeout) {
    const auto deadline = Clock::now() + timeout;
    while (true) {
      std::erase_if(agents_, [](const Agent& agent) {
        const pid_t ended = ::waitpid(agent.pid, nullptr, WNOHANG);
        return ended == agent.pid || (ended < 0 && errno == ECHILD);
      });
      const int left_ms = os::milliseconds_until(deadline);
      if (agents_.empty() || left_ms == 0) return;
      wait_for_end_of(agents_.front(), left_ms);
    }
  }

  // An agent closes its stream, which ends the job, a moment before it can be reaped. On a busy
  // machine that moment may last a while, and a sleep would add to it.
  static void wait_for_end_of(const Agent& agent, int timeout_ms) {
    pollfd ended{agent.pidfd.get(), POLLIN, 0};
    const bool watched = agent.pidfd.valid();
    ::poll(&ended, watched ? 1 : 0, watched ? timeout_ms : 1);
  }

  StageObserver observer_;
  std::vector<Agent> agents_;
};

constexpr TransportDescriptor kDescriptor{.name = "local",
                                          .how = "starts the agent; ships nothing",
                                          .options = "",
                                          .remote = false,
                                          .create = [](const JobSpec&, StageObserver observer) {
                                            return make_local_transport(std::move(observer));
                                          }};

}  // namespace

const TransportDescriptor* local_transport_descriptor() { return &kDescriptor; }

std::unique_ptr<Transport> make_local_transport(StageObserver observer) {
  return std::make_unique<LocalTransport>(std::move(observer));
}

}  // namespace hora::launcher
