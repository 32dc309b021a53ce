// What a process set has agreed on before, so that it can be told again by a number.  [pure]
//
// Every rank of the set keeps one, and rank 0 of the world too. All learn the same verdicts in the
// same order, so the numbers are the same everywhere; they are never used twice. Rank 0 may be
// ahead: a number that another rank still knows can be forgotten there, and then is asked for in
// full.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <unordered_map>

#include "collectives/negotiation/request.h"

namespace hora::collectives {

using CacheId = std::uint64_t;  // 0: none

class ResponseCache {
 public:
  // 0: nothing is ever kept.
  explicit ResponseCache(std::size_t capacity = 0) : capacity_(capacity) {}

  // A rank: the number of what it asked for when the same was agreed last; 0 when it must ask in
  // full.
  CacheId find(const Request& request) const;
  // Rank 0: the number of this very verdict; 0 when it must be told in full.
  CacheId find(const Verdict& verdict) const;
  // Rank 0: what the rank of that index asked for. Nothing when it is forgotten.
  std::optional<Request> request_of(CacheId id, int index) const;
  // A rank: the verdict that was told by its number, as it was for this rank.
  const Verdict* verdict_of(CacheId id) const;

  // In the order of the verdicts: one that was told by its number, and one that was told in full.
  // `mine`: what this rank had asked for; null where it does not take part.
  void learn_again(CacheId id, const Request* mine);
  void learn(const Verdict& verdict, const Request* mine);

  std::size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    CacheId id = 0;
    Verdict verdict;
    Request mine;
    bool takes_part = false;
  };
  using Place = std::list<Entry>::iterator;

  const Entry* by_name(const std::string& name) const;
  const Entry* by_id(CacheId id) const;
  void forget(Place place);

  std::size_t capacity_;
  CacheId next_id_ = 1;
  std::list<Entry> entries_;  // the one used last first
  std::unordered_map<std::string, Place> names_;
  std::unordered_map<CacheId, Place> ids_;
};

}  // namespace hora::collectives
