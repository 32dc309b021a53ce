// SPDX-License-Identifier: Apache-2.0
// The same list in the same order as the bootstrap script has, so that the agent continues where
// the script stopped.
#include "launcher/agent/cache_places.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace hora::launcher {

namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

}  // namespace

std::vector<std::string> cache_places() {
  std::string home = variable("XDG_CACHE_HOME");
  if (home.empty() && !variable("HOME").empty()) home = variable("HOME") + "/.cache";
  std::string temporary = variable("TMPDIR");
  if (temporary.empty()) temporary = "/tmp";
  const std::string own = "/hora-" + std::to_string(::geteuid());
  std::vector<std::string> places;
  if (!home.empty()) places.push_back(home + "/hora");
  places.push_back(temporary + own);
  places.push_back("/dev/shm" + own);
  // A relative XDG_CACHE_HOME or TMPDIR would depend on the working directory; ignore it.
  places.erase(std::remove_if(places.begin(), places.end(),
                              [](const std::string& path) { return path.front() != '/'; }),
               places.end());
  return places;
}

// The script found the earlier places unusable, so the search begins at the one that worked.
std::vector<std::string> cache_places_from(const std::string& first) {
  std::vector<std::string> places = cache_places();
  const auto found = std::find(places.begin(), places.end(), first);
  if (found == places.end()) return {first};
  places.erase(places.begin(), found);
  return places;
}

}  // namespace hora::launcher
