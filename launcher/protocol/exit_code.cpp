// SPDX-License-Identifier: Apache-2.0
#include "launcher/protocol/exit_code.h"

namespace hora::launcher {

std::string_view spawn_stage_name(SpawnStage stage) {
  switch (stage) {
    case SpawnStage::kNone:
      return "nothing";
    case SpawnStage::kClone:
      return "creating a process";
    case SpawnStage::kSession:
      return "starting a session";
    case SpawnStage::kParentDeath:
      return "tying the process to its agent";
    case SpawnStage::kCgroup:
      return "joining the job's cgroup";
    case SpawnStage::kDescriptors:
      return "placing standard streams";
    case SpawnStage::kLimits:
      return "setting the limit of open files";
    case SpawnStage::kDirectory:
      return "entering the working directory";
    case SpawnStage::kPipes:
      return "creating a pipe";
    case SpawnStage::kTerminal:
      return "creating a terminal (--pty)";
    case SpawnStage::kPmi:
      return "connecting to the PMI server";
    case SpawnStage::kExecute:
    case SpawnStage::kSearch:
    case SpawnStage::kInterpreter:
      return "executing";
  }
  return "starting";
}

}  // namespace hora::launcher
