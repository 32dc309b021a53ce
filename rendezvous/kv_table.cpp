// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/kv_table.h"

#include "rendezvous/kv_target.h"

namespace hora::rendezvous {

void KvTable::begin_round(const std::vector<ScopeSize>& scopes) {
  scopes_.clear();
  key_count_ = 0;
  stored_bytes_ = 0;
  for (const ScopeSize& known : scopes) {
    if (known.size > 0) scope_named(known.scope).expected = known.size;
  }
}

KvTable::Value KvTable::find(std::string_view scope, std::string_view key) const {
  const auto found = scopes_.find(scope);
  if (found == scopes_.end()) return nullptr;
  const auto value = found->second.values.find(key);
  return value == found->second.values.end() ? nullptr : value->second;
}

std::size_t KvTable::size(std::string_view scope) const {
  const auto found = scopes_.find(scope);
  return found == scopes_.end() ? 0 : found->second.values.size();
}

KvTable::Value KvTable::batch(std::string_view name) {
  const auto found = scopes_.find(name);
  if (found == scopes_.end() || found->second.values.empty()) return nullptr;
  Scope& scope = found->second;
  // Made once for all readers: a thousand ranks that fetch a whole scope get the same bytes.
  if (!scope.batch) {
    std::string body;
    for (const auto& [key, value] : scope.values) append_batch_entry(body, key, *value);
    scope.batch = std::make_shared<const std::string>(std::move(body));
  }
  return scope.batch;
}

bool KvTable::has_room(std::string_view scope, std::string_view key,
                       std::size_t value_bytes) const {
  // A value that is replaced makes room for its successor.
  const Value replaced = find(scope, key);
  if (!replaced && key_count_ >= limits_.keys) return false;
  const std::size_t freed = replaced ? key.size() + replaced->size() : 0;
  return stored_bytes_ - freed + key.size() + value_bytes <= limits_.total_bytes;
}

bool KvTable::has_room_for(std::size_t keys, std::size_t bytes) const {
  return key_count_ + keys <= limits_.keys && stored_bytes_ + bytes <= limits_.total_bytes;
}

std::uint64_t KvTable::room_after(std::uint64_t receiving) const {
  const std::uint64_t used = stored_bytes_ + receiving;
  return limits_.total_bytes > used ? limits_.total_bytes - used : 0;
}

KvTable::Value KvTable::store(std::string_view name, std::string_view key, std::string value) {
  // Shared with every reply that sends it: a value of many megabytes is copied for no reader, and
  // survives its replacement until all have it.
  auto shared = std::make_shared<const std::string>(std::move(value));
  Scope& scope = scope_named(name);
  const auto found = scope.values.find(key);
  if (found == scope.values.end()) {
    scope.values.emplace(std::string(key), shared);
    ++key_count_;
    stored_bytes_ += key.size();
  } else {
    stored_bytes_ -= found->second->size();
    found->second = shared;
  }
  stored_bytes_ += shared->size();
  scope.batch.reset();
  return shared;
}

void KvTable::remove(std::string_view name, std::string_view key) {
  const auto found = scopes_.find(name);
  if (found == scopes_.end()) return;
  Scope& scope = found->second;
  if (scope.expected > 0) {
    // A set: a repeated request counts once.
    scope.done.emplace(key);
    // DELETE in a scope of known size means that one process is done with it. The values go when
    // all are, since the others may still read them.
    if (scope.done.size() >= static_cast<std::size_t>(scope.expected)) clear(scope);
    return;
  }
  const auto value = scope.values.find(key);
  if (value == scope.values.end()) return;
  stored_bytes_ -= value->first.size() + value->second->size();
  --key_count_;
  scope.values.erase(value);
  scope.batch.reset();
  if (scope.values.empty()) scopes_.erase(found);
}

KvTable::Scope& KvTable::scope_named(std::string_view name) {
  const auto found = scopes_.find(name);
  if (found != scopes_.end()) return found->second;
  return scopes_.emplace(std::string(name), Scope{}).first->second;
}

void KvTable::clear(Scope& scope) {
  for (const auto& [key, value] : scope.values) stored_bytes_ -= key.size() + value->size();
  key_count_ -= scope.values.size();
  scope.values.clear();
  // The scope can be used for another round of the same processes.
  scope.done.clear();
  scope.batch.reset();
}

}  // namespace hora::rendezvous
