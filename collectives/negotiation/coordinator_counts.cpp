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
  take_apart(set);
  last_asked_[static_cast<std::size_t>(rank)].note(known.agreed, now);
  return count_known(set, static_cast<std::size_t>(index), number, known, now);
}

bool Coordinator::count_known(Set& set, std::size_t index, std::uint64_t number,
                              const Response& known, TimePoint now) {
  // Counting does not cover groups, which become ready together, nor ranks that have joined; and
  // one name must not be counted and have an entry at the same time.
  if (set.joined_count > 0 || !known.agreed.group.empty() ||
      (!set.entries.empty() && set.entries.count(known.agreed.name) != 0)) {
    auto request = request_of(known, static_cast<int>(index));
    if (!request) return false;
    add_in_full(set, set.ranks[index], std::move(*request), now);
    return true;
  }
  Count* count = find_count(set.counts, number);
  if (count == nullptr) {
    Count fresh;
    fresh.number = number;
    fresh.known = &known;
    fresh.since = now;
    count = &set.counts.insert(number, std::move(fresh));
  }
  if (count->arrive(index) && count->arrived == static_cast<int>(set.ranks.size())) {
    count->order = ++next_order_;
    set.ready_counts.push_back(number);
  }
  return true;
}

bool Coordinator::add_together(int rank, const SequencePtr& sequence, TimePoint now) {
  const auto found = sets_.find(sequence->process_set);
  if (found == sets_.end()) return false;
  Set& set = found->second;
  const int index = set.index_of[static_cast<std::size_t>(rank)];
  Together& together = set.together;
  // Whatever else there is may concern one of its members, and a rank that has joined takes part in
  // each as it is at that moment.
  if (index < 0 || set.joined_count > 0 || !set.entries.empty() || !set.counts.empty() ||
      (together.sequence != nullptr && together.sequence != sequence)) {
    return false;
  }
  if (together.sequence == nullptr) {
    together.sequence = sequence;
    together.count.since = now;
  }
  last_asked_[static_cast<std::size_t>(rank)].note(sequence->responses.back()->agreed, now);
  if (together.count.arrive(static_cast<std::size_t>(index)) &&
      together.count.arrived == static_cast<int>(set.ranks.size())) {
    together.count.order = ++next_order_;
  }
  return true;
}

SequencePtr Coordinator::take_ready_together() {
  Set* its_set = nullptr;
  if (!immediate_.empty()) return nullptr;
  for (auto& [id, set] : sets_) {
    if (!set.ready.empty() || !set.ready_counts.empty() || !set.broken_groups.empty() ||
        !set.broken_sets.empty()) {
      return nullptr;
    }
    if (set.together.count.order == 0) continue;
    if (its_set != nullptr) return nullptr;
    its_set = &set;
  }
  if (its_set == nullptr) return nullptr;
  waiting_since_.reset();
  return std::exchange(its_set->together, {}).sequence;
}

// From here on as if its members had been asked for one by one, in the order of the list, by each
// rank that has asked for the list. If all had, all members are ready in that order.
void Coordinator::take_apart(Set& set) {
  if (set.together.sequence == nullptr) return;
  const Together before = std::exchange(set.together, {});
  const Sequence& sequence = *before.sequence;
  for (std::size_t index = 0; index < set.ranks.size(); ++index) {
    if (!before.count.has(index)) continue;
    for (std::size_t i = 0; i < sequence.numbers.size(); ++i) {
      count_known(set, index, sequence.numbers[i], *sequence.responses[i], before.count.since);
    }
  }
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
  take_apart(set);
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
