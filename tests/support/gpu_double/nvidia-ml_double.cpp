// SPDX-License-Identifier: Apache-2.0
// libnvidia-ml.so.1 of a driver that works, or of one whose kernel part is another:
// HORA_NVML_DOUBLE=mismatch.
#include <cstdio>
#include <cstdlib>

namespace {

constexpr int kMismatch = 18;  // NVML_ERROR_LIB_RM_VERSION_MISMATCH

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

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
