// SPDX-License-Identifier: Apache-2.0
// The requests of the key-value service that wait: for a key, or for a number of keys of a scope.
// [pure]
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "rendezvous/base/time.h"

namespace hora::rendezvous {

class KvWaits {
 public:
  using ClientId = std::uint64_t;  // one connection; it waits for one thing at a time

  std::size_t count() const { return parked_.size(); }
  bool has(ClientId client) const { return parked_.contains(client); }

  void park_for_key(ClientId client, std::string_view scope, std::string_view key,
                    Deadline deadline);
  void park_for_count(ClientId client, std::string_view scope, std::uint64_t keys,
                      Deadline deadline);

  // These end waits, and return the clients whose wait is over. The key exists.
  std::vector<ClientId> take_waiting_for_key(std::string_view scope, std::string_view key);
  // The scope has that many keys.
  std::vector<ClientId> take_waiting_for_count(std::string_view scope, std::uint64_t keys);
  // The deadline has passed.
  std::vector<ClientId> take_expired(Clock::time_point now);
  // The client has gone. Nothing to do if it does not wait.
  void forget(ClientId client);

  std::optional<Clock::time_point> next_deadline() const;
  // How many scopes have a wait and are not known otherwise.
  std::size_t count_scopes(const std::function<bool(std::string_view)>& is_known) const;

 private:
  struct Scope {
    std::multimap<std::string, ClientId, std::less<>> for_key;
    std::multimap<std::uint64_t, ClientId> for_count;
    bool empty() const { return for_key.empty() && for_count.empty(); }
  };
  using Deadlines = std::multimap<Clock::time_point, ClientId>;
  struct Parked {
    std::string scope;
    std::optional<std::string> key = {};  // none: waits for `keys` keys
    std::uint64_t keys = 0;
    Deadlines::iterator deadline = {};
  };

  void park(ClientId client, Parked parked, Deadline deadline);
  // The client is in no list of a scope any more.
  void unpark(ClientId client);

  std::map<std::string, Scope, std::less<>> scopes_;  // each has a wait
  std::unordered_map<ClientId, Parked> parked_;
  Deadlines deadlines_;
};

}  // namespace hora::rendezvous
