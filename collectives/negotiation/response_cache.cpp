#include "collectives/negotiation/response_cache.h"

#include <algorithm>

namespace hora::collectives {

namespace {

bool is_cacheable(const Verdict& verdict) {
  return verdict.status == HORA_OK && verdict.joined.empty() &&
         moves_tensors(verdict.agreed.action);
}

}  // namespace

const ResponseCache::Entry* ResponseCache::by_name(const std::string& name) const {
  const auto found = names_.find(name);
  return found == names_.end() ? nullptr : &*found->second;
}

const ResponseCache::Place* ResponseCache::by_id(CacheId id) const {
  return ids_.find(id, [&](const Place& place) { return place->id == id; });
}

CacheId ResponseCache::find(const Request& request, CacheId likely) const {
  const Place* place = likely == 0 ? nullptr : by_id(likely);
  const Entry* entry = place == nullptr ? by_name(request.name) : &**place;
  return entry != nullptr && entry->takes_part && entry->mine == request ? entry->id : 0;
}

CacheId ResponseCache::find(const Verdict& verdict) const {
  if (!is_cacheable(verdict)) return 0;
  const Entry* entry = by_name(verdict.agreed.name);
  return entry != nullptr && entry->verdict == verdict ? entry->id : 0;
}

CacheId ResponseCache::number_of(const std::string& name) const {
  const Entry* entry = by_name(name);
  return entry == nullptr ? 0 : entry->id;
}

const Verdict* ResponseCache::verdict_of(CacheId id) const {
  const Place* place = by_id(id);
  return place == nullptr ? nullptr : &(*place)->verdict;
}

void ResponseCache::learn_again(CacheId id, const Request* mine) {
  const Place* place = by_id(id);
  if (place == nullptr) return;
  entries_.splice(entries_.begin(), entries_, *place);
  if (mine != nullptr) entries_.front().mine = *mine;
}

void ResponseCache::learn(const Verdict& verdict, const Request* mine,
                          const Forgetting& forgetting) {
  if (capacity_ == 0 || !is_cacheable(verdict)) return;
  if (const auto before = names_.find(verdict.agreed.name); before != names_.end()) {
    forget(before->second, forgetting);
  }
  entries_.push_front({next_id_++, verdict, mine == nullptr ? Request{} : *mine, mine != nullptr});
  names_[verdict.agreed.name] = entries_.begin();
  ids_.insert(entries_.front().id, entries_.begin());
  if (entries_.size() > capacity_) forget(std::prev(entries_.end()), forgetting);
}

void ResponseCache::forget(Place place, const Forgetting& forgetting) {
  if (forgetting) forgetting(place->id);
  names_.erase(place->verdict.agreed.name);
  ids_.take(place->id, [&](const Place& each) { return each == place; });
  forgotten_.splice(forgotten_.begin(), entries_, place);
}

std::optional<Request> request_of(const Verdict& verdict, int index) {
  if (index < 0) return std::nullopt;
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

}  // namespace hora::collectives
