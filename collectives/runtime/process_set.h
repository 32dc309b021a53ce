// A group of ranks that run collectives together, as this rank's runtime sees it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "collectives/backends/backend.h"
#include "collectives/negotiation/response_cache.h"
#include "collectives/runtime/operation.h"
#include "collectives/selection/select.h"

namespace hora::collectives {

struct DestroyBackend {
  void operator()(Backend* backend) const { backend->destroy(); }
};
using BackendPtr = std::unique_ptr<Backend, DestroyBackend>;

// Belongs to the thread that drives the runtime.
struct ProcessSet {
  std::int32_t id = 0;
  std::vector<std::int32_t> ranks;  // global, by set index
  int index = -1;                   // of this rank; -1: not a member
  bool one_host = false;
  bool keeps_order = false;  // each element's sum is the same whatever shares its step
  std::vector<std::pair<std::string, BackendPtr>> backends;
  SelectionTable table;                                   // rows of those backends
  std::unordered_map<std::string, OperationPtr> pending;  // by name
  OperationPtr joining;
  ResponseCache cache;

  int size() const { return static_cast<int>(ranks.size()); }
  Backend* find_backend(const std::string& backend) const {
    for (const auto& [id_, instance] : backends) {
      if (id_ == backend) return instance.get();
    }
    return nullptr;
  }
};

// The sets that exist, for any thread to ask.
class SetTable {
 public:
  void add(std::int32_t id, std::vector<std::int32_t> ranks) {
    const std::lock_guard<std::mutex> lock(mutex_);
    sets_[id] = std::move(ranks);
  }
  void remove(std::int32_t id) {
    const std::lock_guard<std::mutex> lock(mutex_);
    sets_.erase(id);
  }
  std::optional<std::vector<std::int32_t>> ranks(std::int32_t id) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = sets_.find(id);
    if (found == sets_.end()) return std::nullopt;
    return found->second;
  }
  std::vector<std::int32_t> ids() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<std::int32_t> ids;
    for (const auto& [id, ranks] : sets_) ids.push_back(id);
    return ids;
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::int32_t, std::vector<std::int32_t>> sets_;
};

}  // namespace hora::collectives
