// SPDX-License-Identifier: Apache-2.0
// Every attempt is a job of its own, with its own connections, agents, rendezvous and token:
// nothing of a failed attempt can reach into the next one. The runtime stays cached on the hosts.
#include "launcher/supervisor/attempts.h"

#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <optional>
#include <utility>

#include "launcher/dial/step_transport.h"
#include "launcher/engines/registry.h"
#include "launcher/fleet/local_hosts.h"
#include "launcher/job/restart_policy.h"
#include "launcher/plan/plan.h"
#include "launcher/process/signals.h"
#include "launcher/protocol/exit_code.h"
#include "launcher/text/text.h"
#include "rendezvous/os/random.h"
#include "rendezvous/os/time_until.h"

namespace hora::launcher {

namespace {

// 0 for a missing file: the copy will report it.
std::uint64_t file_size(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 ? static_cast<std::uint64_t>(info.st_size) : 0;
}

// Returns the signal that ended the wait; 0: the time has passed.
int wait_for_signal(std::chrono::milliseconds delay) {
  const sigset_t ending = ending_signals();
  const auto deadline = Clock::now() + delay;
  for (;;) {
    const timespec timeout = os::timespec_until(deadline);
    const int signal = ::sigtimedwait(&ending, nullptr, &timeout);
    if (signal > 0) return signal;
    // Interrupted, as by SIGCONT: the rest of the time remains.
    if (errno != EINTR) return 0;
  }
}

// The machines besides this one that the job will ask for first. Those of a discovery script are
// not known yet, and the run reports what is wrong with a plan.
std::vector<Host> first_hosts(const JobSpec& spec) {
  std::vector<Host> hosts;
  if (spec.elastic) {
    if (spec.elastic->discovery_script.empty()) hosts = spec.hosts;  // an engine's, at the start
  } else if (const auto plan = plan_job(spec, settle_named_slots(spec))) {
    for (const HostPlan& host : plan->hosts) hosts.push_back(host.host);
  }
  // The node of a batch script is one of the job's: its agent needs no step.
  if (spec.local_directly) std::erase_if(hosts, is_named_as_this_machine);
  return hosts;
}

// All of them must outlive the supervisor.
void choose_transport(Supervisor& supervisor, const JobSpec& spec, const Installation& installation,
                      const HostOwner& owner) {
  if (owner.explain) supervisor.explain_ends_by(owner.explain);
  if (owner.transport) {
    supervisor.reach_hosts_by([&spec, &owner](StageObserver observer) {
      return owner.transport(spec, std::move(observer));
    });
  }
  // Machines that join, and pods, are of no engine that could be asked.
  const EngineDescriptor* const engine = spec.engine ? find_engine(spec.engine->name) : nullptr;
  if (engine == nullptr) return;
  const auto words = std::make_shared<EngineWords>(*engine, *spec.engine);
  supervisor.explain_ends_by(
      [words](const Cause&, Milliseconds timeout) { return words->why_ended(timeout); });
  if (!spec.engine_step) return;
  const Build& own = installation.own();
  StepSource source;
  source.machine = own.machine;
  source.agent = {own.agent_path, own.agent_sha256, file_size(own.agent_path)};
  if (!own.dial_sha256.empty()) {
    source.helper = {own.dial_path, own.dial_sha256, file_size(own.dial_path)};
  }
  supervisor.reach_hosts_by([&spec, words, source = std::move(source)](StageObserver observer) {
    return make_step_transport(spec, source, first_hosts(spec), words, std::move(observer));
  });
}

// The supervisor says what is wrong with each host, and nothing has been printed of the others yet.
Result<int> run_on_reachable(JobSpec spec, const Installation& installation,
                             const EnvironmentList& environment, const HostOwner& owner) {
  int first_failure = 0;
  for (;;) {
    std::vector<std::string> unreached;
    {
      Supervisor supervisor(spec, installation, environment);
      choose_transport(supervisor, spec, installation, owner);
      auto exit_code = supervisor.run();
      if (!exit_code) return exit_code;
      if (first_failure == 0) first_failure = *exit_code;
      unreached = supervisor.unreached_hosts();
    }
    const auto gone = std::erase_if(spec.hosts, [&unreached](const Host& host) {
      return std::find(unreached.begin(), unreached.end(), host.name) != unreached.end();
    });
    if (gone == 0 || spec.hosts.empty()) return first_failure;
  }
}

}  // namespace

Result<int> run_attempts(JobSpec spec, const Installation& installation,
                         const EnvironmentList& environment, const HostOwner& owner) {
  if (spec.manages_cache)
    return run_on_reachable(std::move(spec), installation, environment, owner);
  if (!spec.restart) {
    Supervisor supervisor(spec, installation, environment);
    choose_transport(supervisor, spec, installation, owner);
    return supervisor.run();
  }
  // No secret: only a name by which programs know that they are the same run.
  spec.restart->run_id = os::random_token();
  RestartPolicy policy(spec.restart->most);
  for (;;) {
    std::optional<JobSpec> next;
    int signal = 0;
    // The block ends the supervisor, and with it every connection and thread of the attempt, before
    // the next one begins.
    {
      Supervisor supervisor(spec, installation, environment);
      choose_transport(supervisor, spec, installation, owner);
      supervisor.use_restarts(policy);
      auto exit_code = supervisor.run();
      next = supervisor.next_attempt();
      if (!exit_code || !next) return exit_code;
      // One that came after the restart was decided, while the last output was written.
      signal = supervisor.interrupted_by();
    }
    if (signal == 0) signal = wait_for_signal(spec.restart->delay);
    if (signal != 0) {
      std::fprintf(stderr, "horarun: ended by %s before %s\n", signal_name(signal).c_str(),
                   policy.count_text().c_str());
      return exit_code_of_signal(signal);
    }
    spec = std::move(*next);
  }
}

}  // namespace hora::launcher
