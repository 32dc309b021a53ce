// SPDX-License-Identifier: Apache-2.0
// Which entries of a cache have to go, by their last use and size.  [pure]
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "launcher/plan/cache_limits.h"

namespace hora::launcher {

// Entries share the files of equal parts, which take their room once.
struct CachePiece {
  std::string id;
  std::uint64_t bytes = 0;
};

struct CacheItem {
  std::string name;
  std::chrono::seconds unused{0};  // time since its last use
  std::vector<CachePiece> pieces;
  bool in_use = false;
};

// Each in the order of the last use, oldest first.
struct CacheChoice {
  std::vector<std::string> remove;
  std::vector<std::string> kept;  // would have to go, and is in use
};

// Entries that were not used for max_age, then the least recently used until the rest fits into
// max_bytes. None that are in use, although they count. Without limits: everything else.
CacheChoice choose_removals(const std::vector<CacheItem>& items, const CacheLimits& limits);

// The room that all of them take together.
std::uint64_t total_bytes(const std::vector<CacheItem>& items);

}  // namespace hora::launcher
