// SPDX-License-Identifier: Apache-2.0
// Every attempt is a job of its own, with its own connections, agents, rendezvous and token:
// nothing of a failed attempt can reach into the next one. The runtime stays cached on the hosts.
#include "launcher/supervisor/attempts.h"

#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <optional>
#include <utility>

#include "launcher/job/restart_policy.h"
#include "launcher/protocol/exit_code.h"
#include "launcher/supervisor/supervisor.h"
#include "launcher/text/signal_name.h"
#include "rendezvous/os/random.h"

namespace hora::launcher {

namespace {

// Returns the signal that ended the wait; 0: the time has passed.
int wait_for_signal(std::chrono::milliseconds delay) {
  sigset_t ending;
  sigemptyset(&ending);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&ending, signal);
  const auto deadline = Clock::now() + delay;
  for (;;) {
    const auto left = std::max<Clock::duration>(deadline - Clock::now(), Clock::duration::zero());
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
    const timespec patience{seconds.count(), std::chrono::nanoseconds(left - seconds).count()};
    const int signal = ::sigtimedwait(&ending, nullptr, &patience);
    if (signal > 0) return signal;
    // Interrupted, as by SIGCONT: the rest of the time remains.
    if (errno != EINTR) return 0;
  }
}

}  // namespace

Result<int> run_attempts(JobSpec spec, const Installation& installation,
                         const EnvironmentList& environment) {
  if (!spec.restart) return Supervisor(std::move(spec), installation, environment).run();
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
      supervisor.use_restarts(policy);
      const auto exit_code = supervisor.run();
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
