// SPDX-License-Identifier: Apache-2.0
// The steps by which a rank comes into being. A failure to start one names its step and an errno,
// so that whoever reports it has facts and not a sentence.  [pure]
#pragma once

#include <cstdint>
#include <string_view>

namespace hora::launcher {

// The numbers travel in RankExit.
enum class SpawnStage : std::uint8_t {
  kNone = 0,  // it was started
  // What the child does before it executes.
  kClone,
  kSession,
  kParentDeath,
  kCgroup,
  kDescriptors,
  kLimits,
  kDirectory,
  kExecute,
  // What its parent does before that.
  kSearch,  // for the program, in PATH or by its path
  kPipes,
  kPmi,
  // The kernel found the program and not what the program names to run it.
  kInterpreter,
};
inline constexpr SpawnStage kLastSpawnStage = SpawnStage::kInterpreter;

// "executing", "creating a process", ...: what failed, for an error text.
std::string_view spawn_stage_name(SpawnStage stage);

}  // namespace hora::launcher
