// SPDX-License-Identifier: Apache-2.0
// Reaches the hosts of an allocation by one command of its engine: a step with a task on every
// host, whose helper dials the launcher (launcher/dial/). The agents run in the step. A host from
// which nobody dials is reached by a command of its own, as a host of --rsh is.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "launcher/plan/job_spec.h"
#include "launcher/step/engine_words.h"
#include "launcher/step/step_words.h"
#include "launcher/transports/transport.h"

namespace hora::launcher {

struct StepSource {
  std::string machine;  // of the files, as `uname -m` says
  StepFile helper;      // an empty path: this installation has none
  StepFile agent;
};

// `hosts` are those that the job will ask for. Never fails: without a step there are commands for
// each host. `spec` must outlive the transport. `words` hears what the engine's commands say.
std::unique_ptr<Transport> make_step_transport(const JobSpec& spec, StepSource source,
                                               std::vector<Host> hosts,
                                               std::shared_ptr<EngineWords> words,
                                               StageObserver observer);

}  // namespace hora::launcher
