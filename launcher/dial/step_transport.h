// SPDX-License-Identifier: Apache-2.0
// Reaches hosts whose helpers dial the launcher: those of an allocation by one command of its
// engine, pods by kubectl.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/dial/dial_protocol.h"
#include "launcher/dial/starter.h"
#include "launcher/engines/engine.h"
#include "launcher/plan/job_spec.h"
#include "launcher/protocol/messages.h"
#include "launcher/transports/transport.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

// The messages of an engine's commands while they run a job's hosts, the engine's answer when it is
// asked for the job, and whether that means that it has ended the job. May be used by any thread.

class EngineWords {
 public:
  EngineWords(const EngineDescriptor& engine, JobEngine job)
      : engine_(engine), job_(std::move(job)) {}

  const EngineDescriptor& engine() const { return engine_; }
  void receive(std::string_view said);         // on stderr
  void command_ended(const std::string& how);  // the one with the agents, which was not asked to
  std::vector<FailedHost> failed_hosts();      // so far, by what was said

  // E_ENGINE, with the messages. Waits for them, `timeout` at the most, and asks the engine then:
  // for when a job has ended in a way that this could explain. With a timeout of 0, only messages
  // that have arrived count.
  std::optional<Failure> why_ended(std::chrono::milliseconds timeout);

 private:
  std::string received(std::chrono::milliseconds timeout);
  std::string asked() const;

  const EngineDescriptor& engine_;
  const JobEngine job_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string said_;  // guarded by mutex_, as the next one; the last of it
  std::string end_;
};

// Reaches hosts whose helpers connect to the launcher (launcher/dial/): those of an allocation by
// one command of its engine, a step with a task on every host in which the agents run, others by a
// starter of their own. A host that does not connect is reached by a command of its own, as a host
// of --rsh is.

struct StepSource {
  std::string machine;  // of the files, as `uname -m` says
  StepFile helper;      // an empty path: this installation has none
  StepFile agent;
};

// `hosts` are those that the job will ask for. Never fails: without a step there are commands for
// each host. `spec` must outlive the transport. `words` gets the messages of the engine's commands.
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
