// SPDX-License-Identifier: Apache-2.0
// A double of the store for ranks that are threads of one process: a map.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <string>

#include "rendezvous/base/text.h"
#include "rendezvous/store.h"

namespace hora::rendezvous {

// One mutex and one condition variable for all keys: the ranks are few, and each waits for one key.
// Every change wakes all waiters, and each looks for its own key.
class MemoryStore final : public Store {
 public:
  Status set(std::string_view key, std::string_view value, Deadline deadline) override;
  Status set_all(std::string_view place, const KvEntries& entries, Deadline deadline) override;
  Result<std::optional<std::string>> get(std::string_view key, Deadline deadline) override;
  Result<std::string> wait(std::string_view key, Deadline deadline) override;
  Result<KvEntries> gather(std::string_view place, std::size_t count, Deadline deadline) override;
  Status remove(std::string_view key, Deadline deadline) override;

 private:
  KvEntries entries_of(std::string_view place) const;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string, std::less<>> values_;  // by full key
};

inline Status MemoryStore::set(std::string_view key, std::string_view value, Deadline) {
  {
    std::lock_guard lock(mutex_);
    values_.insert_or_assign(std::string(key), std::string(value));
  }
  // After the lock is released, so that a waiter does not wake up only to block on it.
  changed_.notify_all();
  return Ok{};
}

inline Status MemoryStore::set_all(std::string_view place, const KvEntries& entries, Deadline) {
  {
    // One lock for all entries: a reader sees all of them or none.
    std::lock_guard lock(mutex_);
    for (const auto& [name, value] : entries) {
      values_.insert_or_assign(std::string(place) + "/" + name, value);
    }
  }
  changed_.notify_all();
  return Ok{};
}

inline Result<std::optional<std::string>> MemoryStore::get(std::string_view key, Deadline) {
  std::lock_guard lock(mutex_);
  const auto found = values_.find(key);
  if (found == values_.end()) return std::optional<std::string>();
  return std::optional<std::string>(found->second);
}

inline Result<std::string> MemoryStore::wait(std::string_view key, Deadline deadline) {
  std::unique_lock lock(mutex_);
  auto found = values_.end();
  const bool there = changed_.wait_until(lock, deadline, [&] {
    // A removal may come between the notification and this look, so look again each time.
    found = values_.find(key);
    return found != values_.end();
  });
  if (there) return found->second;
  return make_error(ErrorCode::kTimedOut, "waiting for the key " + quote(key) + ": timed out");
}

inline Result<KvEntries> MemoryStore::gather(std::string_view place, std::size_t count,
                                             Deadline deadline) {
  std::unique_lock lock(mutex_);
  // Collected inside the condition, under the lock, so that the result is what satisfied it.
  KvEntries entries;
  const bool there = changed_.wait_until(lock, deadline, [&] {
    entries = entries_of(place);
    return entries.size() >= count;
  });
  if (there) return entries;
  return make_error(ErrorCode::kTimedOut, "waiting for " + std::to_string(count) + " keys in " +
                                              quote(place) + ": timed out");
}

// A removal satisfies no wait, so it wakes no waiter.
inline Status MemoryStore::remove(std::string_view key, Deadline) {
  std::lock_guard lock(mutex_);
  const auto found = values_.find(key);
  if (found != values_.end()) values_.erase(found);
  return Ok{};
}

inline KvEntries MemoryStore::entries_of(std::string_view place) const {
  // The map is sorted, so the keys of a place are neighbours. A name with a slash belongs to a
  // deeper place.
  const std::string prefix = std::string(place) + "/";
  KvEntries entries;
  for (auto at = values_.lower_bound(prefix); at != values_.end(); ++at) {
    const std::string_view key = at->first;
    if (key.substr(0, prefix.size()) != prefix) break;
    const std::string_view name = key.substr(prefix.size());
    if (name.find('/') == std::string_view::npos) entries.emplace_back(name, at->second);
  }
  return entries;
}

}  // namespace hora::rendezvous
