// SPDX-License-Identifier: Apache-2.0
// An LRU cache over a list, with two indices into it. Every rank must evict the same entry at the
// same time, so eviction depends only on the sequence of responses. Evicted entries move to
// forgotten_, since pointers to their responses may still be in use until let_go().
#include "collectives/negotiation/response_cache.h"

#include <algorithm>

namespace hora::collectives {

namespace {

// Errors are not repeated, and a response with joined ranks holds only until those ranks are back.
bool is_cacheable(const Response& response) {
  return response.status == HORA_OK && response.joined.empty() &&
         moves_tensors(response.agreed.action);
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
  // The number saves the hash of the name; the comparison below still checks everything.
  const Entry* entry = place == nullptr ? by_name(request.name) : &**place;
  return entry != nullptr && entry->takes_part && entry->mine == request ? entry->id : 0;
}

CacheId ResponseCache::find(const Response& response) const {
  if (!is_cacheable(response)) return 0;
  const Entry* entry = by_name(response.agreed.name);
  return entry != nullptr && entry->response == response ? entry->id : 0;
}

CacheId ResponseCache::number_of(const std::string& name) const {
  const Entry* entry = by_name(name);
  return entry == nullptr ? 0 : entry->id;
}

const Response* ResponseCache::response_of(CacheId id) const {
  const Place* place = by_id(id);
  return place == nullptr ? nullptr : &(*place)->response;
}

void ResponseCache::learn_again(CacheId id, const Request* mine) {
  const Place* place = by_id(id);
  if (place == nullptr) return;
  // A use moves the entry to the front, the end that is evicted last.
  entries_.splice(entries_.begin(), entries_, *place);
  ++learned_;
  // The rank's own request may differ from the last one in what ranks need not agree on.
  if (mine != nullptr) entries_.front().mine = *mine;
}

void ResponseCache::learn_again(std::span<const CacheId> ids, std::uint64_t before) {
  // Nothing else has been used since: they are at the front, in this order.
  if (learned_ == before) return;
  for (const CacheId id : ids) learn_again(id, nullptr);
}

void ResponseCache::learn(const Response& response, const Request* mine,
                          const Forgetting& forgetting) {
  if (capacity_ == 0 || !is_cacheable(response)) return;
  // A new agreement on a name replaces the old one, under a new number.
  if (const auto before = names_.find(response.agreed.name); before != names_.end()) {
    forget(before->second, forgetting);
  }
  ++learned_;
  entries_.push_front({next_id_++, response, mine == nullptr ? Request{} : *mine, mine != nullptr});
  names_[response.agreed.name] = entries_.begin();
  ids_.insert(entries_.front().id, entries_.begin());
  // Only after the insertion, so that the pushed entry is never the victim of its own arrival.
  if (entries_.size() > capacity_) forget(std::prev(entries_.end()), forgetting);
}

void ResponseCache::forget(Place place, const Forgetting& forgetting) {
  if (forgetting) forgetting(place->id);
  ++forgotten_count_;
  names_.erase(place->response.agreed.name);
  ids_.take(place->id, [&](const Place& each) { return each == place; });
  forgotten_.splice(forgotten_.begin(), entries_, place);
}

std::optional<Request> request_of(const Response& response, int index) {
  if (index < 0) return std::nullopt;
  const auto at = static_cast<std::size_t>(index);
  Request request = response.agreed;
  if (request.action == Action::kAllgather) {
    if (at >= response.numbers.size() || request.shape.empty()) return std::nullopt;
    request.shape[0] = response.numbers[at];
  }
  if (request.action == Action::kAlltoall) {
    // The matrix of splits is square: recover its side.
    std::size_t size = 1;
    while (size * size < response.all_splits.size()) ++size;
    if (at >= size || request.shape.empty()) return std::nullopt;
    const auto row = response.all_splits.begin() + static_cast<std::ptrdiff_t>(at * size);
    request.splits.assign(row, row + static_cast<std::ptrdiff_t>(size));
    request.shape[0] = 0;
    for (std::int64_t rows : request.splits) request.shape[0] += rows;
  }
  return request;
}

}  // namespace hora::collectives
