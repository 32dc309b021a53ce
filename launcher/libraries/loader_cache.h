// SPDX-License-Identifier: Apache-2.0
// The list of libraries that ldconfig makes for glibc's loader: /etc/ld.so.cache.  [pure]
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace hora::launcher {

// soname -> the files of that name, in the loader's order; of all processors that the machine
// serves. Empty when the bytes are no such list. Any bytes are safe to give.
std::map<std::string, std::vector<std::string>> parse_loader_cache(std::string_view bytes);

}  // namespace hora::launcher
