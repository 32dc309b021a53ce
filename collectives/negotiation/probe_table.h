// SPDX-License-Identifier: Apache-2.0
// A table of things that the caller looks up by a hash that it has computed before: an insertion
// allocates nothing, and neighbours in the hash are neighbours in memory.  [pure]
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace hora::collectives {

// The hash of a name within a process set.
inline std::uint64_t name_hash(std::int32_t process_set, std::string_view name) {
  return std::hash<std::string_view>{}(name) ^
         (static_cast<std::uint64_t>(process_set) * 0x9E3779B97F4A7C15u);
}

// Open addressing with linear probing (Robin Hood), at most half full: a thing that is further from
// the slot of its hash goes first, so a removal moves few. `matches`, a function of a thing,
// distinguishes things with the same hash. No thing may be inserted twice. Not thread-safe.
template <typename Thing>
class ProbeTable {
 public:
  std::size_t size() const { return count_; }
  bool empty() const { return count_ == 0; }

  template <typename Matches>
  Thing* find(std::uint64_t hash, const Matches& matches) {
    const std::size_t at = place_of(hash, matches);
    return at == kNowhere ? nullptr : &slots_[at].thing;
  }
  template <typename Matches>
  const Thing* find(std::uint64_t hash, const Matches& matches) const {
    const std::size_t at = place_of(hash, matches);
    return at == kNowhere ? nullptr : &slots_[at].thing;
  }

  // The reference is valid until the next insertion or removal.
  Thing& insert(std::uint64_t hash, Thing thing) {
    if (2 * (count_ + 1) > slots_.size()) grow();
    ++count_;
    return put(hash, std::move(thing));
  }

  // Removes a thing and returns it; Thing{} where there is none.
  template <typename Matches>
  Thing take(std::uint64_t hash, const Matches& matches) {
    std::size_t at = place_of(hash, matches);
    if (at == kNowhere) return Thing{};
    Thing taken = std::move(slots_[at].thing);
    --count_;
    // Things that had to pass this place move up, so no tombstones are necessary.
    for (std::size_t next = after(at); slots_[next].used && distance(next) > 0;
         next = after(next)) {
      slots_[at] = std::move(slots_[next]);
      at = next;
    }
    slots_[at] = Slot{};
    return taken;
  }

  template <typename Function>
  void each(const Function& function) const {
    for (const Slot& slot : slots_) {
      if (slot.used) function(slot.thing);
    }
  }

  // Returns all things and leaves the table empty.
  std::vector<Thing> take_all() {
    std::vector<Thing> things;
    things.reserve(count_);
    for (Slot& slot : slots_) {
      if (slot.used) things.push_back(std::move(slot.thing));
      slot = Slot{};
    }
    count_ = 0;
    return things;
  }

 private:
  struct Slot {
    std::uint64_t hash = 0;
    bool used = false;
    Thing thing{};
  };
  static constexpr std::size_t kNowhere = SIZE_MAX;

  std::size_t mask() const { return slots_.size() - 1; }
  std::size_t after(std::size_t at) const { return (at + 1) & mask(); }
  std::size_t distance(std::size_t at) const { return (at - slots_[at].hash) & mask(); }

  template <typename Matches>
  std::size_t place_of(std::uint64_t hash, const Matches& matches) const {
    if (count_ == 0) return kNowhere;
    std::size_t at = hash & mask();
    for (std::size_t far = 0; slots_[at].used && distance(at) >= far; ++far, at = after(at)) {
      if (slots_[at].hash == hash && matches(slots_[at].thing)) return at;
    }
    return kNowhere;
  }

  Thing& put(std::uint64_t hash, Thing thing) {
    Slot slot{hash, true, std::move(thing)};
    std::size_t at = hash & mask();
    Thing* placed = nullptr;
    for (std::size_t far = 0; slots_[at].used; ++far, at = after(at)) {
      if (distance(at) >= far) continue;
      far = distance(at);
      std::swap(slot, slots_[at]);
      if (placed == nullptr) placed = &slots_[at].thing;
    }
    slots_[at] = std::move(slot);
    return placed != nullptr ? *placed : slots_[at].thing;
  }

  void grow() {
    std::vector<Slot> before = std::exchange(slots_, {});
    slots_.resize(before.empty() ? 16 : 2 * before.size());
    for (Slot& slot : before) {
      if (slot.used) put(slot.hash, std::move(slot.thing));
    }
  }

  std::vector<Slot> slots_;
  std::size_t count_ = 0;
};

}  // namespace hora::collectives
