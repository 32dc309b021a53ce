// SPDX-License-Identifier: Apache-2.0
// A store in memory, and a view of a store under a prefix.
#pragma once

#include <string>
#include "rendezvous/store.h"
#include <condition_variable>
#include <map>
#include <mutex>

namespace hora::rendezvous {

// A store inside a part of another store: every key gets "prefix/" in front. As thread-safe as that
// store is.

class PrefixStore final : public Store {
 public:
  // `store` must outlive this. `prefix` may itself hold slashes; it must not be empty.
  PrefixStore(Store& store, std::string prefix) : store_(store), prefix_(std::move(prefix)) {}

  Status set(std::string_view key, std::string_view value, Deadline deadline) override {
    return store_.set(full(key), value, deadline);
  }
  Status set_all(std::string_view place, const KvEntries& entries, Deadline deadline) override {
    return store_.set_all(full(place), entries, deadline);
  }
  Result<std::optional<std::string>> get(std::string_view key, Deadline deadline) override {
    return store_.get(full(key), deadline);
  }
  Result<std::string> wait(std::string_view key, Deadline deadline) override {
    return store_.wait(full(key), deadline);
  }
  Result<KvEntries> gather(std::string_view place, std::size_t count, Deadline deadline) override {
    return store_.gather(full(place), count, deadline);
  }
  Status remove(std::string_view key, Deadline deadline) override {
    return store_.remove(full(key), deadline);
  }

 private:
  std::string full(std::string_view key) const { return prefix_ + "/" + std::string(key); }

  Store& store_;
  std::string prefix_;
};

// A store inside one process, for a world of one rank and for ranks that are threads.

// Any number of threads may use it at the same time.
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

}  // namespace hora::rendezvous
