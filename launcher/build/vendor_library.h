// SPDX-License-Identifier: Apache-2.0
// Looks for a vendor's library on this machine by loading it, as a rank would.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hora::launcher {

struct VendorLibrary {
  std::string path;     // the file that the loader took; empty: none
  std::string version;  // as the library says; empty: it has no way to say
  std::string error;    // the loader's words, of the last place that was tried
};

// `feature` is a name of scripts/cmake/HoraFeatures.cmake. The folders are tried before the places
// that the loader knows; `built_location`, the file at build time, comes last. The library stays
// loaded: for a program that prints and ends.
VendorLibrary find_vendor_library(std::string_view feature, const std::vector<std::string>& folders,
                                  const std::string& built_location);

}  // namespace hora::launcher
