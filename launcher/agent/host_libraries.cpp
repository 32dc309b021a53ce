// SPDX-License-Identifier: Apache-2.0
// The agent looks before it knows the job's order, so that parts which the host lacks can travel
// while the other hosts are still connecting.
#include "launcher/agent/host_libraries.h"

#include <algorithm>
#include <cstdlib>
#include <string>

#include "launcher/libraries/library_search.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

std::vector<std::string> asked_for(const AgentOptions& options) {
  std::vector<std::string> names = libraries_in(options.parts);
  for (const std::string_view name : split(options.find, ',')) {
    if (!name.empty() && std::find(names.begin(), names.end(), name) == names.end()) {
      names.emplace_back(name);
    }
  }
  return names;
}

// In the order of the loader, for a program with a DT_RUNPATH.
std::vector<std::string> folders_of(const AgentOptions& options) {
  // Ranks have this host's own value where the launcher forwards none.
  const char* const own = std::getenv("LD_LIBRARY_PATH");
  const std::string path =
      options.library_path.empty() && own != nullptr ? own : options.library_path;
  return absolute_folders(path + ":" + options.run_path);
}

}  // namespace

std::vector<HostLibrary> find_host_libraries(const AgentOptions& options) {
  std::vector<HostLibrary> found;
  const std::vector<std::string> names = asked_for(options);
  if (names.empty()) return found;
  const LibrarySearch search(folders_of(options));
  for (const std::string& name : names) {
    HostLibrary& each = found.emplace_back();
    each.soname = name;
    if (const auto file = search.find(name)) each.path = file->path;
    if (const auto whole = search.find_with_needs(name); !whole) each.fault = whole.error().message;
  }
  return found;
}

}  // namespace hora::launcher
