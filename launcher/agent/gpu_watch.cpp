// SPDX-License-Identifier: Apache-2.0
#include "launcher/agent/gpu_watch.h"

#include <dirent.h>

#include <algorithm>
#include <memory>

#include "launcher/agent/host_facts.h"

namespace hora::launcher {

namespace {

// The addresses by which the driver knows the GPUs of this host, or of this container.
std::vector<std::string> gpu_addresses() {
  std::vector<std::string> found;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc/driver/nvidia/gpus"),
                                                   ::closedir);
  while (const dirent* item = folder ? ::readdir(folder.get()) : nullptr) {
    const std::string name(item->d_name);
    if (name.find(':') != std::string::npos) found.push_back(name);
  }
  return found;
}

}  // namespace

bool is_of_gpus(const XidMessage& message, const std::vector<std::string>& gpus) {
  const std::string address = message.device.substr(0, message.device.find(' '));
  // The kernel's log is that of the machine: in a container it holds faults of GPUs that others
  // use.
  return gpus.empty() || std::any_of(gpus.begin(), gpus.end(), [&address](const std::string& gpu) {
           return gpu.compare(0, address.size(), address) == 0;
         });
}

void GpuWatch::begin() {
  if (count_gpus() == 0) return;
  gpus_ = gpu_addresses();
  log_.emplace();
}

bool GpuWatch::read_new(const std::function<void(const XidMessage&)>& take) {
  if (!log_) return false;
  return log_->read_new([this, &take](std::string_view line) {
    const auto message = parse_xid(line);
    // A broken GPU repeats its fault thousands of times: each is told once, and kMost of them at
    // all.
    if (!message || !is_of_gpus(*message, gpus_) || told_.size() >= kMost) return;
    if (told_.emplace(message->device, message->code, message->pid).second) take(*message);
  });
}

}  // namespace hora::launcher
