// SPDX-License-Identifier: Apache-2.0
// Asked once for each device: the answer costs a call into the driver, and a device that was there
// does not go away.
#include "collectives/runtime/device_access.h"

#include <mutex>
#include <set>

#include "collectives/backends/registry.h"

namespace hora::collectives {

namespace {

// A device that gives memory is there. One whose memory is full gives none, and copies all the
// same.
bool is_there(std::int32_t device, ErrorText& why_not) {
  const BackendDescriptor* const owner = device_memory();
  if (owner == nullptr) return why_not.set("nothing here knows tensors of a GPU");
  if (void* const memory = owner->allocate(device, 1, nullptr); memory != nullptr) {
    owner->release(device, memory);
    return true;
  }
  return owner->to_host(device, nullptr, 0, why_not);
}

}  // namespace

// A module whose library this process has no use for is not loaded for the question.
const BackendDescriptor* device_memory() {
  for (const BackendRow& row : backend_rows()) {
    ErrorText why_not;
    if (!is_called_for(row, why_not)) continue;
    const auto descriptor = load_backend(row);
    if (descriptor && (*descriptor)->allocate != nullptr) return *descriptor;
  }
  return nullptr;
}

Status check_device(std::int32_t device) {
  // Held during the call into the driver: a second thread has to wait for the answer anyway.
  static std::mutex mutex;
  static std::set<std::int32_t> known;
  const std::lock_guard<std::mutex> lock(mutex);
  if (known.count(device) != 0) return Ok{};
  ErrorText why_not;
  if (!is_there(device, why_not)) {
    return make_error(ErrorCode::kUsage,
                      "device " + std::to_string(device) +
                          " cannot be used (host memory is device -1): " + why_not.text);
  }
  known.insert(device);
  return Ok{};
}

}  // namespace hora::collectives
