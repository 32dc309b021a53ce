// SPDX-License-Identifier: Apache-2.0
#include "launcher/build/runtime_fit.h"

#include "launcher/failures/failure_code.h"
#include "launcher/text/version.h"

namespace hora::launcher {

std::optional<Failure> why_runtime_does_not_fit(std::string_view c_library,
                                                const std::string& least_glibc) {
  constexpr std::string_view kGlibc = "glibc ";
  if (c_library.empty() || least_glibc.empty()) return std::nullopt;
  std::string has;
  if (c_library.substr(0, kGlibc.size()) == kGlibc) {
    if (compare_versions(c_library.substr(kGlibc.size()), least_glibc) >= 0) return std::nullopt;
    has = c_library;
  } else {
    has = c_library == "none" ? "no glibc" : std::string(c_library) + " and no glibc";
  }
  return Failure{
      std::string(failure::kCLibrary),
      "the host has " + has + ", and the runtime needs glibc " + least_glibc + " or newer",
      "leave the host out, run there in a container image with glibc " + least_glibc +
          " or newer, or give --runtime host if the program does not use the runtime"};
}

}  // namespace hora::launcher
