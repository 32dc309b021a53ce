// SPDX-License-Identifier: Apache-2.0
// A store inside one process, for a world of one rank and for ranks that are threads.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>

#include "rendezvous/store.h"

namespace hora::rendezvous {

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
