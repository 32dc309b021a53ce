// SPDX-License-Identifier: Apache-2.0
// A parked request is in three places: parked_ (by client), deadlines_ (by time) and one of its
// scope's lists (by key or by count). The end of a wait removes it from all three.
#include "rendezvous/kv_waits.h"

#include <algorithm>
#include <utility>

namespace hora::rendezvous {

void KvWaits::park_for_key(ClientId client, std::string_view scope, std::string_view key,
                           Deadline deadline) {
  scopes_[std::string(scope)].for_key.emplace(key, client);
  park(client, {.scope = std::string(scope), .key = std::string(key)}, deadline);
}

void KvWaits::park_for_count(ClientId client, std::string_view scope, std::uint64_t keys,
                             Deadline deadline) {
  scopes_[std::string(scope)].for_count.emplace(keys, client);
  park(client, {.scope = std::string(scope), .keys = keys}, deadline);
}

void KvWaits::park(ClientId client, Parked parked, Deadline deadline) {
  parked.deadline = deadlines_.emplace(deadline, client);
  parked_.emplace(client, std::move(parked));
}

void KvWaits::unpark(ClientId client) {
  const auto found = parked_.find(client);
  deadlines_.erase(found->second.deadline);
  parked_.erase(found);
}

// A taken request is no longer parked when the caller answers: an answer may close the connection,
// and forget() then finds nothing to do.
std::vector<KvWaits::ClientId> KvWaits::take_waiting_for_key(std::string_view scope,
                                                             std::string_view key) {
  std::vector<ClientId> clients;
  const auto found = scopes_.find(scope);
  if (found == scopes_.end()) return clients;
  auto& waiting = found->second.for_key;
  const auto [first, last] = waiting.equal_range(key);
  for (auto entry = first; entry != last; ++entry) clients.push_back(entry->second);
  waiting.erase(first, last);
  for (const ClientId client : clients) unpark(client);
  if (found->second.empty()) scopes_.erase(found);
  return clients;
}

std::vector<KvWaits::ClientId> KvWaits::take_waiting_for_count(std::string_view scope,
                                                               std::uint64_t keys) {
  std::vector<ClientId> clients;
  const auto found = scopes_.find(scope);
  if (found == scopes_.end()) return clients;
  auto& waiting = found->second.for_count;
  // Sorted by count, so the requests that are complete are at the front.
  const auto last = waiting.upper_bound(keys);
  for (auto entry = waiting.begin(); entry != last; ++entry) clients.push_back(entry->second);
  waiting.erase(waiting.begin(), last);
  for (const ClientId client : clients) unpark(client);
  if (found->second.empty()) scopes_.erase(found);
  return clients;
}

std::vector<KvWaits::ClientId> KvWaits::take_expired(Clock::time_point now) {
  std::vector<ClientId> clients;
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    clients.push_back(deadlines_.begin()->second);
    forget(clients.back());
  }
  return clients;
}

void KvWaits::forget(ClientId client) {
  const auto parked = parked_.find(client);
  if (parked == parked_.end()) return;
  const auto scope = scopes_.find(parked->second.scope);
  const auto erase_client = [client](auto& waiting, const auto& what) {
    // Several clients may wait for the same key.
    const auto [begin, end] = waiting.equal_range(what);
    const auto entry =
        std::find_if(begin, end, [client](const auto& waits) { return waits.second == client; });
    if (entry != end) waiting.erase(entry);
  };
  if (parked->second.key) {
    erase_client(scope->second.for_key, *parked->second.key);
  } else {
    erase_client(scope->second.for_count, parked->second.keys);
  }
  if (scope->second.empty()) scopes_.erase(scope);
  unpark(client);
}

std::optional<Clock::time_point> KvWaits::next_deadline() const {
  if (deadlines_.empty()) return std::nullopt;
  return deadlines_.begin()->first;
}

std::size_t KvWaits::count_scopes(const std::function<bool(std::string_view)>& is_known) const {
  return static_cast<std::size_t>(std::count_if(
      scopes_.begin(), scopes_.end(), [&](const auto& entry) { return !is_known(entry.first); }));
}

}  // namespace hora::rendezvous
