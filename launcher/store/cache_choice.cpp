// SPDX-License-Identifier: Apache-2.0
// One pass over the entries, oldest first: those that are too old come before those that only take
// too much room, so both limits can be looked at together.
#include "launcher/store/cache_choice.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace hora::launcher {

namespace {

// What several entries share takes room until the last of them is gone.
class SharedBytes {
 public:
  void add(const CacheItem& item) {
    for (const CachePiece& piece : item.pieces) {
      if (holders_[piece.id]++ == 0) bytes_ += piece.bytes;
    }
  }
  void remove(const CacheItem& item) {
    for (const CachePiece& piece : item.pieces) {
      if (--holders_[piece.id] == 0) bytes_ -= piece.bytes;
    }
  }
  std::uint64_t bytes() const { return bytes_; }

 private:
  std::map<std::string, int> holders_;
  std::uint64_t bytes_ = 0;
};

}  // namespace

CacheChoice choose_removals(const std::vector<CacheItem>& items, const CacheLimits& limits) {
  std::vector<const CacheItem*> in_order;
  SharedBytes room;
  for (const CacheItem& item : items) {
    in_order.push_back(&item);
    room.add(item);
  }
  // By name among equals, so that hosts which share the directory choose alike.
  std::sort(in_order.begin(), in_order.end(), [](const CacheItem* a, const CacheItem* b) {
    return std::tie(b->unused, a->name) < std::tie(a->unused, b->name);
  });
  // As `horarun cache clean` without options.
  const bool everything = !limits.max_age && !limits.max_bytes;
  CacheChoice choice;
  for (const CacheItem* const each : in_order) {
    const CacheItem& item = *each;
    const bool too_old = limits.max_age && item.unused >= *limits.max_age;
    const bool too_much = limits.max_bytes && room.bytes() > *limits.max_bytes;
    if (!everything && !too_old && !too_much) continue;
    // Its memory stays allocated, so a younger entry may have to be removed instead.
    if (item.in_use) {
      choice.kept.push_back(item.name);
    } else {
      room.remove(item);
      choice.remove.push_back(item.name);
    }
  }
  return choice;
}

std::uint64_t total_bytes(const std::vector<CacheItem>& items) {
  SharedBytes room;
  for (const CacheItem& item : items) room.add(item);
  return room.bytes();
}

}  // namespace hora::launcher
