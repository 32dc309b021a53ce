// SPDX-License-Identifier: Apache-2.0
#include "launcher/process/one_cpu.h"

#include <sched.h>
#include <sys/stat.h>

#include <utility>

#include "rendezvous/base/text.h"
#include "rendezvous/os/files.h"

namespace hora::launcher {

// Nowhere to move from on a single CPU, and no sense in it where the job was given just one.
std::unique_ptr<OneCpu> OneCpu::stay() {
  CpuMask everywhere = cpu_mask_of_this_thread();
  const int number = ::sched_getcpu();
  if (count_cpus(everywhere) < 2 || number < 0) return nullptr;
  CpuMask here = mask_of({number}, everywhere);
  if (!set_cpu_mask(0, here)) return nullptr;
  return std::unique_ptr<OneCpu>(new OneCpu(std::move(here), std::move(everywhere)));
}

std::unique_ptr<OneCpu> OneCpu::inherited(const std::vector<int>& everywhere) {
  CpuMask here = cpu_mask_of_this_thread();
  CpuMask all = mask_of(everywhere, here);
  if (count_cpus(here) != 1 || count_cpus(all) < 2) return nullptr;
  return std::unique_ptr<OneCpu>(new OneCpu(std::move(here), std::move(all)));
}

OneCpu::~OneCpu() { leave(); }

// A failure does not matter: the kernel refuses only if all of the CPUs have been taken from us,
// and then it has moved us itself.
void OneCpu::leave() {
  if (!std::exchange(staying_, false)) return;
  (void)set_cpu_mask(0, everywhere_);
  // Threads that were started meanwhile have inherited the one CPU. A directory has one link for
  // each of its own, and two more: as a rule, there is none.
  constexpr nlink_t kAlone = 3;
  struct stat info {};
  if (::stat("/proc/self/task", &info) == 0 && info.st_nlink == kAlone) return;
  for (const std::string& name : os::names_in("/proc/self/task")) {
    if (const auto thread = parse_int<pid_t>(name)) (void)set_cpu_mask(*thread, everywhere_);
  }
}

OneCpu::Pause::Pause(OneCpu* place)
    : place_(place != nullptr && place->staying_ ? place : nullptr) {
  if (place_ != nullptr) (void)set_cpu_mask(0, place_->everywhere_);
}

OneCpu::Pause::~Pause() {
  if (place_ != nullptr) (void)set_cpu_mask(0, place_->here_);
}

}  // namespace hora::launcher
