// SPDX-License-Identifier: Apache-2.0
// NVIDIA's management library belongs to the driver, so it is loaded on demand, and what is called
// of it is declared here. The thread holds its lock for the flight record only: never while it asks
// the driver.
#include "collectives/trace/gpu_watch.h"

#include <dlfcn.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/text.h"
#include "rendezvous/os/threads.h"

namespace hora::collectives {

namespace {

constexpr std::chrono::seconds kInterval{1};
constexpr std::chrono::seconds kEndTimeout{2};

using Device = struct nvmlDevice_st*;
struct Utilization {
  unsigned gpu = 0;  // percent of the last second or less
  unsigned memory = 0;
};
struct Memory {
  unsigned long long total = 0;
  unsigned long long free = 0;
  unsigned long long used = 0;
};

// Each returns 0 on success.
struct Nvml {
  int (*init)() = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*by_index)(unsigned, Device*) = nullptr;
  int (*by_uuid)(const char*, Device*) = nullptr;
  int (*uuid)(Device, char*, unsigned) = nullptr;
  int (*utilization)(Device, Utilization*) = nullptr;
  int (*memory)(Device, Memory*) = nullptr;

  bool load(void* library) {
    const auto find = [library](auto& function, const char* name) {
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
      return function != nullptr;
    };
    return find(init, "nvmlInit_v2") && find(count, "nvmlDeviceGetCount_v2") &&
           find(by_index, "nvmlDeviceGetHandleByIndex_v2") &&
           find(by_uuid, "nvmlDeviceGetHandleByUUID") && find(uuid, "nvmlDeviceGetUUID") &&
           find(utilization, "nvmlDeviceGetUtilizationRates") &&
           find(memory, "nvmlDeviceGetMemoryInfo");
  }
};

std::optional<Device> device_at(const Nvml& nvml, unsigned index) {
  Device device = nullptr;
  return nvml.by_index(index, &device) == 0 ? std::optional(device) : std::nullopt;
}

// An index, a UUID, or the beginning of one.
std::optional<Device> device_called(const Nvml& nvml, const std::string& name, unsigned count) {
  if (const auto index = parse_int<unsigned>(name)) {
    return *index < count ? device_at(nvml, *index) : std::nullopt;
  }
  Device device = nullptr;
  if (nvml.by_uuid(name.c_str(), &device) == 0) return device;
  for (unsigned index = 0; index < count && name.starts_with("GPU-"); ++index) {
    char uuid[96] = {};
    const auto each = device_at(nvml, index);
    if (each && nvml.uuid(*each, uuid, sizeof uuid - 1) == 0 &&
        std::string_view(uuid).starts_with(name)) {
      return each;
    }
  }
  return std::nullopt;
}

// CUDA, too, sees none of those that follow one that is not there.
std::vector<Device> devices_of_rank(const Nvml& nvml, int local_rank) {
  unsigned count = 0;
  if (nvml.count(&count) != 0 || count == 0) return {};
  std::vector<Device> devices;
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible == nullptr) {
    const auto own = device_at(nvml, static_cast<unsigned>(std::max(local_rank, 0)) % count);
    if (own) devices.push_back(*own);
    return devices;
  }
  for (const std::string_view name : split(visible, ',')) {
    const auto device = device_called(nvml, std::string(trim(name)), count);
    if (!device) break;
    devices.push_back(*device);
  }
  return devices;
}

void sample(const Nvml& nvml, const std::vector<Device>& devices, rendezvous::FlightGpus& gpus) {
  unsigned long long percent = 0;
  unsigned busy_known = 0;
  gpus.count = static_cast<std::uint32_t>(devices.size());
  gpus.used_bytes = gpus.total_bytes = 0;
  for (Device device : devices) {
    Utilization utilization;
    Memory memory;
    // MIG devices have no such figure.
    if (nvml.utilization(device, &utilization) == 0) {
      percent += std::min(utilization.gpu, 100u);
      ++busy_known;
    }
    if (nvml.memory(device, &memory) != 0) continue;
    gpus.used_bytes += memory.used;
    gpus.total_bytes += memory.total;
  }
  gpus.percent = busy_known == 0 ? -1 : static_cast<std::int32_t>(percent / busy_known);
  gpus.peak_bytes = std::max(gpus.peak_bytes, gpus.used_bytes);
  if (gpus.percent < 0) return;
  gpus.percent_sum += static_cast<std::uint64_t>(gpus.percent);
  ++gpus.samples;
}

}  // namespace

std::unique_ptr<GpuWatch> GpuWatch::start(FlightRecorder& flight, int local_rank) {
  if (!flight.is_open()) return nullptr;
  // Never closed again: the thread may be inside.
  void* const library = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return nullptr;
  std::unique_ptr<GpuWatch> self(new GpuWatch);
  auto thread =
      os::start_service_thread("hora-gpus", [shared = self->shared_, library, &flight, local_rank] {
        run(*shared, library, flight, local_rank);
        const std::lock_guard<std::mutex> lock(shared->mutex);
        shared->ended = true;
        shared->changed.notify_all();
      });
  if (!thread) return nullptr;
  thread->detach();
  return self;
}

void GpuWatch::run(Shared& shared, void* library, FlightRecorder& flight, int local_rank) {
  Nvml nvml;
  if (!nvml.load(library) || nvml.init() != 0) return;
  const std::vector<Device> devices = devices_of_rank(nvml, local_rank);
  rendezvous::FlightGpus gpus;
  while (!devices.empty()) {
    sample(nvml, devices, gpus);
    std::unique_lock<std::mutex> lock(shared.mutex);
    if (shared.stopping) return;
    flight.gpus(gpus);
    shared.changed.wait_for(lock, kInterval, [&] { return shared.stopping; });
    if (shared.stopping) return;
  }
}

GpuWatch::~GpuWatch() {
  std::unique_lock<std::mutex> lock(shared_->mutex);
  shared_->stopping = true;
  shared_->changed.notify_all();
  shared_->changed.wait_for(lock, kEndTimeout, [&] { return shared_->ended; });
}

}  // namespace hora::collectives
