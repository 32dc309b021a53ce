// SPDX-License-Identifier: Apache-2.0
// A message is a sequence of entries, each with a byte for its form. Numbers of one process set
// that follow each other are collected into a run; end_run() writes it in the shorter of two forms.
// The order of the items is preserved: a run that does not ascend cannot become a bitmap.
#include "collectives/negotiation/item_list.h"

#include <algorithm>
#include <functional>

namespace hora::collectives {

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

}  // namespace hora::collectives
