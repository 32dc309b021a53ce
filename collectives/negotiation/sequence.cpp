// SPDX-License-Identifier: Apache-2.0
// A list is as good as its members taken one by one only if nothing can come between them: so it
// has one priority and whole groups. What depends on the list alone is worked out when it is first
// asked for by number; the caller compares its numbers each time.  [pure]
#include "collectives/negotiation/sequence.h"

#include <algorithm>
#include <map>
#include <utility>

#include "collectives/negotiation/item_list.h"

namespace hora::collectives {

namespace {

const SequencePtr kNone;

// What find() goes by; the caller compares the rest.
bool is_like(const Sequence& sequence, std::int32_t process_set, CacheId first, std::size_t size) {
  return sequence.numbers.size() == size && sequence.numbers.front() == first &&
         sequence.process_set == process_set;
}

// Whether all are ready as soon as all ranks have asked for the list, and run in its order. That is
// not so with several priorities, or for a part of a group.
bool ends_together(const std::vector<const Response*>& responses) {
  std::map<std::string_view, std::int32_t> missing;
  for (const Response* response : responses) {
    const Request& agreed = response->agreed;
    if (agreed.priority != responses.front()->agreed.priority) return false;
    if (agreed.group.empty()) continue;
    --missing.try_emplace(agreed.group, agreed.group_size).first->second;
  }
  return std::all_of(missing.begin(), missing.end(),
                     [](const auto& group) { return group.second == 0; });
}

std::int64_t bytes_of(const Request& reduction) {
  return element_count(reduction.shape) * static_cast<std::int64_t>(dtype_bytes(reduction.dtype));
}

}  // namespace

void Sequences::keep(std::int32_t process_set, std::vector<CacheId> numbers,
                     const ResponseCache& cache) {
  if (numbers.size() < kShortest) return;
  auto fresh = std::make_shared<Sequence>();
  fresh->process_set = process_set;
  fresh->forgotten = cache.forgotten();
  fresh->responses.reserve(numbers.size());
  ItemWriter items;
  for (const CacheId number : numbers) {
    const Response* const response = cache.response_of(number);
    // Of the response of an alltoall each rank is told another part.
    if (response == nullptr || response->agreed.action == Action::kAlltoall) return;
    fresh->responses.push_back(response);
    items.by_number({process_set, number});
    const Request& agreed = response->agreed;
    if (agreed.action != Action::kAllreduce) fresh->reduced_bytes = -1;
    if (fresh->reduced_bytes >= 0) fresh->reduced_bytes += bytes_of(agreed);
  }
  if (!ends_together(fresh->responses)) return;
  // One that begins like it would be found in its place.
  fresh->numbers = std::move(numbers);
  fresh->message = items.take();
  const auto alike = std::find_if(kept_.begin(), kept_.end(), [&](const SequencePtr& each) {
    return is_like(*each, process_set, fresh->numbers.front(), fresh->numbers.size());
  });
  if (alike != kept_.end()) {
    *alike = std::move(fresh);
  } else if (kept_.size() < kMost) {
    kept_.push_back(std::move(fresh));
  } else {
    oldest_ = (oldest_ + 1) % kMost;
    kept_[oldest_] = std::move(fresh);
  }
}

const SequencePtr& Sequences::find(std::int32_t process_set, CacheId first,
                                   std::size_t size) const {
  for (const SequencePtr& each : kept_) {
    if (is_like(*each, process_set, first, size)) return each;
  }
  return kNone;
}

const SequencePtr& Sequences::find(std::string_view message) const {
  for (const SequencePtr& each : kept_) {
    if (each->message == message) return each;
  }
  return kNone;
}

}  // namespace hora::collectives
