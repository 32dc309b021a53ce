// SPDX-License-Identifier: Apache-2.0
// A group of ranks that run collectives together, as this rank's runtime sees it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/backend.h"
#include "collectives/backends/fusion_buffer.h"
#include "collectives/negotiation/response_cache.h"
#include "collectives/runtime/operation.h"
#include "collectives/runtime/pending.h"
#include "collectives/selection/select.h"

namespace hora::collectives {

struct DestroyBackend {
  void operator()(Backend* backend) const { backend->destroy(); }
};
using BackendPtr = std::unique_ptr<Backend, DestroyBackend>;

// How far the ranks of a set may be apart for a backend to work.
enum class Scope { kRank, kHost, kHosts };

// Whose algorithm makes the collectives.
enum class Algorithm {
  kBackend,    // the backend's own
  kPeerLinks,  // the runtime's, over a backend that carries bytes from rank to rank
  kComposed,   // the runtime's, over one backend within hosts and one between them
};

// A process set's share of a backend.
struct SetBackend {
  std::string id;
  Scope scope = Scope::kHosts;
  Algorithm algorithm = Algorithm::kBackend;
  std::uint32_t traits = 0;  // backend.h
  BackendPtr instance;

  bool has(std::uint32_t trait) const { return (traits & trait) != 0; }
};

// Belongs to the thread that drives the runtime.
struct ProcessSet {
  std::int32_t id = 0;
  std::vector<std::int32_t> ranks;  // global, by set index
  int index = -1;                   // of this rank; -1: not a member
  bool one_host = false;
  bool keeps_order = false;  // each element's sum is the same whatever shares its step
  std::vector<SetBackend> backends;
  SelectionTable table;  // rows of those backends
  Pending pending;
  OperationPtr joining;
  ResponseCache cache;
  FusionBuffer kept_inputs;  // of averages that may have to be computed once more

  int size() const { return static_cast<int>(ranks.size()); }
  // Null when it has none of that id.
  const SetBackend* find_backend(std::string_view backend) const {
    for (const SetBackend& each : backends) {
      if (each.id == backend) return &each;
    }
    return nullptr;
  }
};

// The existing sets, for any thread to ask once the world, set 0, exists.
class SetTable {
 public:
  void add(std::int32_t id, std::vector<std::int32_t> ranks) {
    const std::lock_guard<std::mutex> lock(mutex_);
    sets_[id] = std::make_shared<const std::vector<std::int32_t>>(std::move(ranks));
    if (id == 0) world_ = sets_[id];
  }
  void remove(std::int32_t id) {
    const std::lock_guard<std::mutex> lock(mutex_);
    sets_.erase(id);
  }
  using Ranks = std::shared_ptr<const std::vector<std::int32_t>>;

  const std::vector<std::int32_t>& world() const { return *world_; }
  // Null when there is no such set.
  Ranks ranks(std::int32_t id) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = sets_.find(id);
    return found == sets_.end() ? nullptr : found->second;
  }
  bool only_the_world() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return sets_.size() == 1;
  }
  std::vector<std::int32_t> ids() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<std::int32_t> ids;
    for (const auto& [id, ranks] : sets_) ids.push_back(id);
    return ids;
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::int32_t, Ranks> sets_;
  Ranks world_;  // never changes, nor goes
};

// The process sets of a rank: with their backends for the thread that drives the runtime, and in a
// table for any other.
class ProcessSets {
 public:
  ProcessSet& world() const { return *world_; }
  // Null when there is no such set.
  ProcessSet* find(std::int32_t id) const {
    const auto found = sets_.find(id);
    return found == sets_.end() ? nullptr : found->second.get();
  }
  void add(std::unique_ptr<ProcessSet> set) {
    const std::int32_t id = set->id;
    table_.add(id, set->ranks);
    if (id == 0) world_ = set.get();
    sets_[id] = std::move(set);
  }
  // Null when there is no such set.
  std::unique_ptr<ProcessSet> take(std::int32_t id) {
    const auto found = sets_.find(id);
    if (found == sets_.end()) return nullptr;
    table_.remove(id);
    std::unique_ptr<ProcessSet> set = std::move(found->second);
    sets_.erase(found);
    return set;
  }
  std::size_t size() const { return sets_.size(); }
  // By id, each a pair of id and set.
  auto begin() const { return sets_.begin(); }
  auto end() const { return sets_.end(); }

  const SetTable& table() const { return table_; }

 private:
  std::map<std::int32_t, std::unique_ptr<ProcessSet>> sets_;
  ProcessSet* world_ = nullptr;
  SetTable table_;
};

}  // namespace hora::collectives
