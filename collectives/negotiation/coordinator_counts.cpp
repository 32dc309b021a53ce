// SPDX-License-Identifier: Apache-2.0
// Counts repeated requests instead of keeping entries: ranks that ask by number cannot disagree, so
// nothing has to be compared. A count turns back into an entry (spell_out) when a rank joins, when
// the number is evicted, or when a rank asks for the same name in full.
#include <algorithm>
#include <utility>

#include "collectives/negotiation/coordinator.h"
#include "collectives/negotiation/response_cache.h"

namespace hora::collectives {

bool Coordinator::Count::arrive(std::size_t index) {
  if (has(index)) return false;
  // One word covers most sets without an allocation.
  std::uint64_t* word = &first_64;
  if (index >= 64) {
    if (beyond.size() < index / 64) beyond.resize(index / 64);
    word = &beyond[index / 64 - 1];
  }
  *word |= std::uint64_t{1} << (index % 64);
  ++arrived;
  return true;
}

bool Coordinator::Count::has(std::size_t index) const {
  if (index >= 64 && beyond.size() < index / 64) return false;
  const std::uint64_t word = index < 64 ? first_64 : beyond[index / 64 - 1];
  return (word >> (index % 64) & 1) != 0;
}

bool Coordinator::add_known(int rank, std::uint64_t number, const Response& known, TimePoint now) {
  const auto found = sets_.find(known.agreed.process_set);
  if (found == sets_.end()) return true;  // removed: the rank has ended it already
  Set& set = found->second;
  const int index = set.index_of[static_cast<std::size_t>(rank)];
  if (index < 0) return false;
  // Counting does not cover groups, which become ready together, nor ranks that have joined; and
  // one name must not be counted and have an entry at the same time.
  if (set.joined_count > 0 || !known.agreed.group.empty() ||
      (!set.entries.empty() && set.entries.count(known.agreed.name) != 0)) {
    auto request = request_of(known, index);
    if (!request) return false;
    add(rank, std::move(*request), now);
    return true;
  }
  last_asked_[static_cast<std::size_t>(rank)].note(known.agreed, now);
  Count* count = find_count(set.counts, number);
  if (count == nullptr) {
    Count fresh;
    fresh.number = number;
    fresh.known = &known;
    fresh.since = now;
    count = &set.counts.insert(number, std::move(fresh));
  }
  if (count->arrive(static_cast<std::size_t>(index)) &&
      count->arrived == static_cast<int>(set.ranks.size())) {
    count->order = ++next_order_;
    set.ready_counts.push_back(number);
  }
  return true;
}

// Adds every counted rank's request in full, as if it had come that way at count.since.
void Coordinator::spell_out(Set& set, const Count& count) {
  for (std::size_t index = 0; index < set.ranks.size(); ++index) {
    if (!count.has(index)) continue;
    auto request = request_of(*count.known, static_cast<int>(index));
    if (request) add_in_full(set, set.ranks[index], std::move(*request), count.since);
  }
}

void Coordinator::spell_out(std::int32_t id, std::uint64_t number) {
  const auto found = sets_.find(id);
  if (found == sets_.end()) return;
  Set& set = found->second;
  if (find_count(set.counts, number) == nullptr) return;
  const Count count = set.counts.take(number, is_number(number));
  // It may be ready already: then the entry becomes ready at once.
  std::erase(set.ready_counts, number);
  spell_out(set, count);
}

// Ready counts come first, in their order, as if they had never had numbers.
void Coordinator::spell_all_out(Set& set) {
  set.ready_counts.clear();
  std::vector<Count> counts = set.counts.take_all();
  std::sort(counts.begin(), counts.end(), [](const Count& a, const Count& b) {
    if ((a.order != 0) != (b.order != 0)) return a.order != 0;
    return a.order != b.order ? a.order < b.order : a.number < b.number;
  });
  for (const Count& count : counts) spell_out(set, count);
}

}  // namespace hora::collectives
