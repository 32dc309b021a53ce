// SPDX-License-Identifier: Apache-2.0
// The earlier agreements of a process set, so that a number can stand for each. [pure] Every rank
// of the set keeps one cache, and rank 0 of the world too. All learn the same responses in the same
// order, so the numbers are the same everywhere; no number is used twice. Rank 0 may be ahead: it
// may have evicted a number that another rank still knows, and then asks for the request in full.
// One thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>

#include "collectives/negotiation/probe_table.h"
#include "collectives/negotiation/request.h"

namespace hora::collectives {

using CacheId = std::uint64_t;  // 0 stands for none

class ResponseCache {
 public:
  // How many responses it keeps; 0 disables it.
  explicit ResponseCache(std::size_t capacity = 0) : capacity_(capacity) {}

  // For a rank: the number of this request if the same was agreed on last; 0 when the rank has to
  // ask in full. `likely` is what this returned for the name before, or 0.
  CacheId find(const Request& request, CacheId likely = 0) const;
  // For rank 0: the number of exactly this response; 0 when it has to be sent in full.
  CacheId find(const Response& response) const;
  // The number of the last agreement on this name; 0 when it is evicted.
  CacheId number_of(const std::string& name) const;
  // The response with that number, as it was for this rank. It stays valid until let_go(), whatever
  // the cache learns meanwhile. Null when it is evicted, or for 0.
  const Response* response_of(CacheId id) const;
  // Frees the evicted responses.
  void let_go() { forgotten_.clear(); }

  // Call one of these for every response, in order: learn_again() for one that came as a number,
  // learn() for one in full. `mine` is this rank's request; null where it does not take part or has
  // asked by this number. `forgetting` receives numbers that become invalid.
  void learn_again(CacheId id, const Request* mine);
  using Forgetting = std::function<void(CacheId)>;
  void learn(const Response& response, const Request* mine, const Forgetting& forgetting = nullptr);

  // As learn_again() for each of these; `before`: what learned() was after the last time.
  void learn_again(std::span<const CacheId> ids, std::uint64_t before);

  std::size_t size() const { return entries_.size(); }
  // Grows with every change of its entries or their order; never 0.
  std::uint64_t learned() const { return learned_; }
  // How many numbers have become invalid: as long as it is the same, so is the meaning of all.
  std::uint64_t forgotten() const { return forgotten_count_; }

 private:
  struct Entry {
    CacheId id = 0;
    Response response;
    Request mine;
    bool takes_part = false;
  };
  using Place = std::list<Entry>::iterator;

  const Entry* by_name(const std::string& name) const;
  const Place* by_id(CacheId id) const;
  void forget(Place place, const Forgetting& forgetting);

  std::size_t capacity_;
  CacheId next_id_ = 1;
  std::uint64_t learned_ = 1;
  std::uint64_t forgotten_count_ = 0;
  std::list<Entry> entries_;  // most recently used first
  std::list<Entry> forgotten_;
  std::unordered_map<std::string, Place> names_;
  ProbeTable<Place> ids_;  // consecutive numbers are neighbours in memory
};

// The request that the rank of that index made for this response; nothing when it is not a member.
std::optional<Request> request_of(const Response& response, int index);

}  // namespace hora::collectives
