// SPDX-License-Identifier: Apache-2.0
// The keys of the key-value server, and its limits.  [pure]
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/contract/store_keys.h"

namespace hora::rendezvous {

// How much a key-value service holds.

struct KvLimits {
  std::size_t value_bytes = 64u << 20;   // one value; a batch's whole body
  std::size_t total_bytes = 512u << 20;  // all keys and values, those being received included
  std::size_t keys = 1u << 20;
  std::size_t parked_waits = 1u << 16;
  std::size_t path_bytes = 2048;                    // of "/scope/key"
  std::chrono::milliseconds longest_wait{300'000};  // longer ones are cut to this
};

// The values of the key-value service: scopes of keys, and what they take up.

class KvTable {
 public:
  using Value = std::shared_ptr<const std::string>;

  explicit KvTable(const KvLimits& limits) : limits_(limits) {}

  // Forgets all values, and takes the scopes whose number of processes is known.
  void begin_round(const std::vector<ScopeSize>& scopes);

  // Null when there is no such key.
  Value find(std::string_view scope, std::string_view key) const;
  // How many keys the scope has.
  std::size_t size(std::string_view scope) const;
  // All keys and values of the scope, as kv_target.h encodes them; null when it has none. Made once
  // for all readers between two writes.
  Value batch(std::string_view scope);

  bool has_room(std::string_view scope, std::string_view key, std::size_t value_bytes) const;
  // For that many keys at once, with that many bytes together, even if none replaces another.
  bool has_room_for(std::size_t keys, std::size_t bytes) const;
  // Bytes that may still come while `receiving` others are on their way.
  std::uint64_t room_after(std::uint64_t receiving) const;

  // Returns the value as it is kept. Ask has_room() first.
  Value store(std::string_view scope, std::string_view key, std::string value);
  // Forgets the key. In a scope with a known number of processes it says instead that one of them,
  // named by the key, is done; the values go when all are.
  void remove(std::string_view scope, std::string_view key);

  bool contains(std::string_view scope) const { return scopes_.contains(scope); }
  std::size_t scope_count() const { return scopes_.size(); }
  std::size_t key_count() const { return key_count_; }
  std::size_t stored_bytes() const { return stored_bytes_; }

 private:
  struct Scope {
    std::map<std::string, Value, std::less<>> values;
    int expected = 0;  // processes; 0: not known
    std::set<std::string, std::less<>> done;
    Value batch;  // of all values; null when it has to be rebuilt
  };

  Scope& scope_named(std::string_view name);
  void clear(Scope& scope);

  KvLimits limits_;
  std::map<std::string, Scope, std::less<>> scopes_;  // each has values, or a known size
  std::size_t key_count_ = 0;
  std::size_t stored_bytes_ = 0;  // keys and values
};

}  // namespace hora::rendezvous
