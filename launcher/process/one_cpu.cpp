// SPDX-License-Identifier: Apache-2.0
#include "launcher/process/one_cpu.h"

#include <dirent.h>
#include <sched.h>

#include <cstdlib>
#include <utility>

namespace hora::launcher {

// Nowhere to move from on a single CPU, and no sense in it where the job was given just one.
std::unique_ptr<OneCpu> OneCpu::stay(int cpu) {
  CpuMask everywhere = cpu_mask_of_this_thread();
  if (count_cpus(everywhere) < 2) return nullptr;
  const int number = cpu >= 0 ? cpu : ::sched_getcpu();
  if (number < 0 || !has_cpu(everywhere, static_cast<std::size_t>(number))) return nullptr;
  std::unique_ptr<OneCpu> place(new OneCpu(number, std::move(everywhere)));
  place->staying_ = set_cpu_mask(0, place->here_);
  return place->staying_ ? std::move(place) : nullptr;
}

OneCpu::OneCpu(int cpu, CpuMask everywhere)
    : cpu_(cpu), everywhere_(std::move(everywhere)), here_(mask_of({cpu}, everywhere_)) {}

OneCpu::~OneCpu() { leave(); }

// A failure is no matter: the kernel refuses only if all of the CPUs have been taken from us, and
// then it has moved us itself.
void OneCpu::leave() {
  if (!std::exchange(staying_, false)) return;
  (void)set_cpu_mask(0, everywhere_);
  // Threads that were started meanwhile have inherited the one CPU.
  const std::unique_ptr<DIR, int (*)(DIR*)> threads(::opendir("/proc/self/task"), ::closedir);
  while (threads != nullptr) {
    const dirent* item = ::readdir(threads.get());
    if (item == nullptr) break;
    if (const pid_t thread = std::atoi(item->d_name); thread > 0) {
      (void)set_cpu_mask(thread, everywhere_);
    }
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
