// SPDX-License-Identifier: Apache-2.0
// Reaches hosts whose helpers dial the launcher (launcher/dial/): those of an allocation by one
// command of its engine, a step with a task on every host in which the agents run, others by a
// starter of their own. A host from which nobody dials is reached by a command of its own, as a
// host of --rsh is.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "launcher/plan/job_spec.h"
#include "launcher/step/engine_words.h"
#include "launcher/step/starter.h"
#include "launcher/step/step_words.h"
#include "launcher/transports/transport.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

struct StepSource {
  std::string machine;  // of the files, as `uname -m` says
  StepFile helper;      // an empty path: this installation has none
  StepFile agent;
};

// `hosts` are those that the job will ask for. Never fails: without a step there are commands for
// each host. `spec` must outlive the transport. `words` hears what the engine's commands say.
std::unique_ptr<Transport> make_step_transport(const JobSpec& spec, StepSource source,
                                               const std::vector<Host>& hosts,
                                               std::shared_ptr<EngineWords> words,
                                               StageObserver observer);
// `way`: how hosts are reached that dial, for people; "srun". `problem`: begins the line about the
// first one that does not.
struct DialWay {
  std::string way;
  std::string problem;
  std::string remedy;  // what is done with those that do not; ends that line
  MakeStarter make_starter;
  // What can begin before there is anything to dial to. Empty: nothing can.
  std::function<Status()> begin_early;
  bool by_helpers = false;  // hora-dial of this version dials, and not `horarun --join`
};
std::unique_ptr<Transport> make_dial_transport(const JobSpec& spec, DialWay way,
                                               const std::vector<Host>& hosts,
                                               std::shared_ptr<EngineWords> words,
                                               StageObserver observer);

}  // namespace hora::launcher
