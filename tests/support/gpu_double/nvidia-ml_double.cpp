// SPDX-License-Identifier: Apache-2.0
// libnvidia-ml.so.1 of a driver that works, or of one whose kernel part is another:
// HORA_NVML_DOUBLE=mismatch. GPU n is busy for 40 + n percent of the time, and n + 1 of its 8 GiB
// are in use.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr int kMismatch = 18;  // NVML_ERROR_LIB_RM_VERSION_MISMATCH
constexpr int kNotFound = 6;   // NVML_ERROR_NOT_FOUND
constexpr unsigned long long kGib = 1ull << 30;

unsigned device_count() {
  const char* const count = std::getenv("HORA_DOUBLE_DEVICES");
  return count == nullptr ? 1 : static_cast<unsigned>(std::atoi(count));
}

// Devices are their numbers, from 1 on.
unsigned number_of(void* device) {
  return static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(device)) - 1;
}

void write_uuid(unsigned number, char* uuid, unsigned length) {
  std::snprintf(uuid, length, "GPU-d0b1e%03u-0000-0000-0000-000000000000", number);
}

}  // namespace

// NOLINTBEGIN(readability-identifier-naming): NVML's own names.
extern "C" {

__attribute__((visibility("default"))) int nvmlInit_v2() {
  return std::getenv("HORA_NVML_DOUBLE") != nullptr ? kMismatch : 0;
}

__attribute__((visibility("default"))) int nvmlShutdown() { return 0; }

__attribute__((visibility("default"))) int nvmlSystemGetDriverVersion(char* version,
                                                                      unsigned length) {
  std::snprintf(version, length, "535.104.05");
  return 0;
}

__attribute__((visibility("default"))) const char* nvmlErrorString(int code) {
  return code == kMismatch ? "Driver/library version mismatch" : "Success";
}

__attribute__((visibility("default"))) int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = device_count();
  return 0;
}

__attribute__((visibility("default"))) int nvmlDeviceGetHandleByIndex_v2(unsigned index,
                                                                         void** device) {
  if (index >= device_count()) return kNotFound;
  *device = reinterpret_cast<void*>(static_cast<std::uintptr_t>(index) + 1);
  return 0;
}

__attribute__((visibility("default"))) int nvmlDeviceGetUUID(void* device, char* uuid,
                                                             unsigned length) {
  write_uuid(number_of(device), uuid, length);
  return 0;
}

__attribute__((visibility("default"))) int nvmlDeviceGetHandleByUUID(const char* uuid,
                                                                     void** device) {
  for (unsigned number = 0; number < device_count(); ++number) {
    char own[96];
    write_uuid(number, own, sizeof own);
    if (std::strcmp(own, uuid) == 0) return nvmlDeviceGetHandleByIndex_v2(number, device);
  }
  return kNotFound;
}

__attribute__((visibility("default"))) int nvmlDeviceGetUtilizationRates(void* device,
                                                                         unsigned* rates) {
  rates[0] = 40 + number_of(device);  // of the processors
  rates[1] = 10;                      // of the memory
  return 0;
}

__attribute__((visibility("default"))) int nvmlDeviceGetMemoryInfo(void* device,
                                                                   unsigned long long* memory) {
  memory[0] = 8 * kGib;
  memory[2] = (number_of(device) + 1) * kGib;
  memory[1] = memory[0] - memory[2];
  return 0;
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
