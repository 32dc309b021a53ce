// What a process set has agreed on before, so that it can be told again by a number.  [pure]
//
// Every rank of the set keeps one, and rank 0 of the world too. All learn the same responses in the
// same order, so the numbers are the same everywhere; they are never used twice. Rank 0 may be
// ahead: a number that another rank still knows can be forgotten there, and then is asked for in
// full.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <unordered_map>

#include "collectives/negotiation/probe_table.h"
#include "collectives/negotiation/request.h"

namespace hora::collectives {

using CacheId = std::uint64_t;  // 0: none

class ResponseCache {
 public:
  // 0: nothing is ever kept.
  explicit ResponseCache(std::size_t capacity = 0) : capacity_(capacity) {}

  // A rank: the number of what it asked for when the same was agreed last; 0 when it must ask in
  // full. `likely`: what this answered for the name before, or 0.
  CacheId find(const Request& request, CacheId likely = 0) const;
  // Rank 0: the number of this very response; 0 when it must be told in full.
  CacheId find(const Response& response) const;
  // The number under which something of this name was agreed on last; 0 when that is forgotten.
  CacheId number_of(const std::string& name) const;
  // The response that is told by its number, as it was for this rank. It stays where it is until
  // let_go(), whatever is learnt meanwhile. Null when it is forgotten, or 0.
  const Response* response_of(CacheId id) const;
  // Frees what was forgotten.
  void let_go() { forgotten_.clear(); }

  // In the order of the responses: one that was told by its number, and one that was told in full.
  // `mine`: what this rank had asked for; null where it does not take part, or has asked for it by
  // this number. `forgetting` is told of numbers that mean nothing from now on.
  void learn_again(CacheId id, const Request* mine);
  using Forgetting = std::function<void(CacheId)>;
  void learn(const Response& response, const Request* mine, const Forgetting& forgetting = nullptr);

  std::size_t size() const { return entries_.size(); }

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
  std::list<Entry> entries_;  // the one used last first
  std::list<Entry> forgotten_;
  std::unordered_map<std::string, Place> names_;
  ProbeTable<Place> ids_;  // numbers that follow each other lie beside each other
};

// What the rank of that index had asked for when this was agreed on. Nothing when it is no member.
std::optional<Request> request_of(const Response& response, int index);

}  // namespace hora::collectives
