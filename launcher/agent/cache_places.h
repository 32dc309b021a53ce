// SPDX-License-Identifier: Apache-2.0
// The directories of this account that may hold a cache. Reads the environment; makes nothing.
#pragma once

#include <string>
#include <vector>

namespace hora::launcher {

// In the order in which the start script tries them (transports/bootstrap.cpp), by the variables
// that it has read as well: $XDG_CACHE_HOME or ~/.cache, $TMPDIR or /tmp, /dev/shm.
std::vector<std::string> cache_places();

// `first` and those that follow it; `first` alone when it is none of them.
std::vector<std::string> cache_places_from(const std::string& first);

}  // namespace hora::launcher
