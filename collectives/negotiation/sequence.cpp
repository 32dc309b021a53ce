// SPDX-License-Identifier: Apache-2.0
#include "collectives/negotiation/sequence.h"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

namespace hora::collectives {

// A message is a sequence of entries, each with a byte for its form. Numbers of one process set
// that follow each other are collected into a run; end_run() writes it in the shorter of two forms.
// The order of the items is preserved: a run that does not ascend cannot become a bitmap.

namespace {

enum Form : std::uint8_t {
  kFull = 0,
  kList = 1,  // set, count, first number, differences
  kBits = 2,  // set, first number, a text whose bit i says whether first + i is meant
};

// The longest run that a well-formed message has. A bitmap expands eightfold or more in memory, so
// the reader bounds it.
constexpr std::uint64_t kLongestRun = 1u << 24;

bool ascends(const std::vector<std::uint64_t>& ids) {
  return std::adjacent_find(ids.begin(), ids.end(), std::greater_equal<>()) == ids.end();
}

}  // namespace

WireWriter& ItemWriter::in_full() {
  end_run();
  out_.u8(kFull);
  return out_;
}

void ItemWriter::by_number(Reference reference) {
  // Numbers are unique within a set only.
  if (!run_.empty() && run_set_ != reference.process_set) end_run();
  run_set_ = reference.process_set;
  run_.push_back(reference.id);
}

std::string ItemWriter::take() {
  end_run();
  return out_.take();
}

// Writes the collected numbers, before an item in full or at the end of the message.
void ItemWriter::end_run() {
  if (run_.empty()) return;
  const std::uint64_t span = run_.back() - run_.front();
  // A bitmap takes span / 8 bytes, a list at least one byte per number.
  const bool bits = ascends(run_) && span / 8 < run_.size();
  out_.u8(bits ? kBits : kList);
  out_.varint(static_cast<std::uint64_t>(run_set_));
  if (bits) {
    std::string text(static_cast<std::size_t>(span / 8 + 1), '\0');
    for (std::uint64_t id : run_) {
      const std::uint64_t bit = id - run_.front();
      char& byte = text[static_cast<std::size_t>(bit / 8)];
      byte = static_cast<char>(byte | (1 << (bit % 8)));
    }
    // Bit i stands for the number run_.front() + i.
    out_.varint(run_.front());
    out_.text(text);
  } else {
    out_.varint(run_.size());
    std::uint64_t before = 0;
    for (std::uint64_t id : run_) {
      out_.integer(static_cast<std::int64_t>(id - before));
      before = id;
    }
  }
  run_.clear();
}

bool ItemReader::read_list() {
  reference_.process_set = static_cast<std::int32_t>(in_.varint());
  const std::uint64_t count = in_.varint();
  std::uint64_t id = 0;
  for (std::uint64_t i = 0; i < count && in_.ok(); ++i) {
    // Differences may be negative; unsigned arithmetic wraps without harm.
    id += static_cast<std::uint64_t>(in_.integer());
    run_.push_back(id);
  }
  return in_.ok() && !run_.empty();
}

bool ItemReader::read_bits() {
  reference_.process_set = static_cast<std::int32_t>(in_.varint());
  const std::uint64_t first = in_.varint();
  const std::string text = in_.text();
  if (!in_.ok() || text.size() > kLongestRun / 8) return false;
  for (std::size_t i = 0; i < text.size() * 8; ++i) {
    if (static_cast<unsigned char>(text[i / 8]) >> (i % 8) & 1u) run_.push_back(first + i);
  }
  return !run_.empty();
}

ItemReader::Next ItemReader::next() {
  // The run is used up: read the next entry of the message.
  if (place_ == run_.size()) {
    run_.clear();
    place_ = 0;
    if (!in_.ok()) return Next::kMalformed;
    if (in_.at_end()) return Next::kEnd;
    switch (in_.u8()) {
      case kFull:
        return Next::kInFull;
      case kList:
        if (!read_list()) return Next::kMalformed;
        break;
      case kBits:
        if (!read_bits()) return Next::kMalformed;
        break;
      // Another version's entry has an unknown length, so nothing after it can be read.
      default:
        return Next::kMalformed;
    }
  }
  reference_.id = run_[place_++];
  return Next::kByNumber;
}

// A list is as good as its members taken one by one only if nothing can come between them: so it
// has one priority and whole groups. What depends on the list alone is worked out when it is first
// asked for by number; the caller compares its numbers each time.

namespace {

const SequencePtr kNone;

// The key of find(); the caller compares the rest.
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
    // Each rank gets another part of the response of an alltoall.
    if (response == nullptr || response->agreed.action == Action::kAlltoall) return;
    fresh->responses.push_back(response);
    items.by_number({process_set, number});
    const Request& agreed = response->agreed;
    if (agreed.action != Action::kAllreduce) fresh->reduced_bytes = -1;
    if (fresh->reduced_bytes >= 0) fresh->reduced_bytes += tensor_bytes(agreed);
  }
  if (!ends_together(fresh->responses)) return;
  // One with the same beginning would be found instead of it.
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
