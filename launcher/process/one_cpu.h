// SPDX-License-Identifier: Apache-2.0
// The processes of a short launch work one after the other: each wakes the next one and waits.
// On one CPU that is a switch. On two, the next one has to wait for a CPU that was given to another
// program meanwhile, for some milliseconds each time, or has to be woken from its sleep.
#pragma once

#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "launcher/process/cpu_mask.h"

namespace hora::launcher {

class OneCpu {
 public:
  // For how long launcher and agent do so: most of what a short job is has happened by then.
  static constexpr std::chrono::milliseconds kWhile{100};

  // The calling thread, and what it starts, stays from now on the CPU where it is. Null where it
  // has only one, or the kernel refuses.
  static std::unique_ptr<OneCpu> stay();
  // The calling thread stays where the process was that has started it, and these are its CPUs
  // otherwise. Null where it may run on several, or has no others.
  static std::unique_ptr<OneCpu> inherited(const std::vector<int>& everywhere);
  // Leaves, but for stay_to_the_end().
  ~OneCpu();
  OneCpu(const OneCpu&) = delete;
  OneCpu& operator=(const OneCpu&) = delete;

  // Where it may run otherwise: for what is started, which is not to stay (SpawnRequest::cpus).
  const CpuMask& everywhere() const { return everywhere_; }

  // All threads of this process may run everywhere again, those that began meanwhile included.
  void leave();

  // Nothing is left to do for this process that would be worth a move.
  void stay_to_the_end() { staying_ = false; }

  // For as long as it lives, the calling thread sees all of its CPUs.
  class Pause {
   public:
    explicit Pause(OneCpu* place);  // null: nothing is changed
    ~Pause();
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    OneCpu* place_;
  };

 private:
  OneCpu(CpuMask here, CpuMask everywhere)
      : everywhere_(std::move(everywhere)), here_(std::move(here)) {}

  CpuMask everywhere_;
  CpuMask here_;
  bool staying_ = true;
};

}  // namespace hora::launcher
