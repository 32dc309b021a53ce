#include "collectives/negotiation/response_cache.h"

#include <algorithm>

namespace hora::collectives {

namespace {

bool is_cacheable(const Verdict& verdict) {
  if (verdict.status != HORA_OK || !verdict.joined.empty()) return false;
  switch (verdict.agreed.action) {
    case Action::kAllreduce:
    case Action::kAllgather:
    case Action::kBroadcast:
    case Action::kAlltoall:
    case Action::kReducescatter:
      return true;
    default:
      return false;
  }
}

}  // namespace

const ResponseCache::Entry* ResponseCache::by_name(const std::string& name) const {
  const auto found = names_.find(name);
  return found == names_.end() ? nullptr : &*found->second;
}

const ResponseCache::Entry* ResponseCache::by_id(CacheId id) const {
  const auto found = ids_.find(id);
  return found == ids_.end() ? nullptr : &*found->second;
}

CacheId ResponseCache::find(const Request& request) const {
  const Entry* entry = by_name(request.name);
  return entry != nullptr && entry->takes_part && entry->mine == request ? entry->id : 0;
}

CacheId ResponseCache::find(const Verdict& verdict) const {
  if (!is_cacheable(verdict)) return 0;
  const Entry* entry = by_name(verdict.agreed.name);
  return entry != nullptr && entry->verdict == verdict ? entry->id : 0;
}

std::optional<Request> ResponseCache::request_of(CacheId id, int index) const {
  const Entry* entry = by_id(id);
  if (entry == nullptr || index < 0) return std::nullopt;
  const Verdict& verdict = entry->verdict;
  const auto at = static_cast<std::size_t>(index);
  Request request = verdict.agreed;
  if (request.action == Action::kAllgather) {
    if (at >= verdict.numbers.size() || request.shape.empty()) return std::nullopt;
    request.shape[0] = verdict.numbers[at];
  }
  if (request.action == Action::kAlltoall) {
    std::size_t size = 1;
    while (size * size < verdict.all_splits.size()) ++size;
    if (at >= size || request.shape.empty()) return std::nullopt;
    const auto row = verdict.all_splits.begin() + static_cast<std::ptrdiff_t>(at * size);
    request.splits.assign(row, row + static_cast<std::ptrdiff_t>(size));
    request.shape[0] = 0;
    for (std::int64_t rows : request.splits) request.shape[0] += rows;
  }
  return request;
}

const Verdict* ResponseCache::verdict_of(CacheId id) const {
  const Entry* entry = by_id(id);
  return entry == nullptr ? nullptr : &entry->verdict;
}

void ResponseCache::learn_again(CacheId id, const Request* mine) {
  const auto found = ids_.find(id);
  if (found == ids_.end()) return;
  entries_.splice(entries_.begin(), entries_, found->second);
  if (mine != nullptr) entries_.front().mine = *mine;
}

void ResponseCache::learn(const Verdict& verdict, const Request* mine) {
  if (capacity_ == 0 || !is_cacheable(verdict)) return;
  if (const auto before = names_.find(verdict.agreed.name); before != names_.end()) {
    forget(before->second);
  }
  entries_.push_front({next_id_++, verdict, mine == nullptr ? Request{} : *mine, mine != nullptr});
  names_[verdict.agreed.name] = entries_.begin();
  ids_[entries_.front().id] = entries_.begin();
  if (entries_.size() > capacity_) forget(std::prev(entries_.end()));
}

void ResponseCache::forget(Place place) {
  names_.erase(place->verdict.agreed.name);
  ids_.erase(place->id);
  entries_.erase(place);
}

}  // namespace hora::collectives
