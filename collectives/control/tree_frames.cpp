// SPDX-License-Identifier: Apache-2.0
#include "collectives/control/tree_frames.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace hora::collectives {

namespace {

enum PassageKind : std::uint8_t { kToAll = 1, kToSome = 2 };

}  // namespace

// How many runs; of each how many ranks are left out before it, and its length less one.
void write_ranks(WireWriter& out, const Ranks& ranks) {
  std::size_t runs = 0;
  for (std::size_t i = 0; i < ranks.size(); ++i) runs += i == 0 || ranks[i] != ranks[i - 1] + 1;
  out.varint(runs);
  std::int32_t next = 0;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    out.varint(static_cast<std::uint64_t>(ranks[i] - next));
    out.varint(end - i - 1);
    next = ranks[end - 1] + 1;
    i = end;
  }
}

// A few bytes can name a run of any length, so each is compared with the size of the world before
// room is made for its ranks.
Ranks read_ranks(WireReader& in, std::int32_t end) {
  Ranks ranks;
  const auto limit = static_cast<std::uint64_t>(end);
  const std::uint64_t runs = in.varint();
  std::uint64_t next = 0;
  for (std::uint64_t run = 0; run < runs && in.ok(); ++run) {
    const std::uint64_t gap = in.varint();
    const std::uint64_t more = in.varint();
    if (gap > limit || more > limit || next + gap + more >= limit) {
      in.fail();
      break;
    }
    next += gap;
    for (std::uint64_t i = 0; i <= more; ++i) ranks.push_back(static_cast<std::int32_t>(next++));
  }
  if (!in.ok()) ranks.clear();
  return ranks;
}

std::optional<std::vector<Word>> decode_words(std::string_view message, std::int32_t size) {
  WireReader in(message);
  std::vector<Word> words;
  while (!in.at_end()) {
    Word word;
    const std::uint8_t kind = in.u8();
    if (kind < Word::kSaid || kind > Word::kCutOff) return std::nullopt;
    word.kind = static_cast<Word::Kind>(kind);
    word.ranks = read_ranks(in, size);
    word.text = in.text();
    if (!in.ok()) return std::nullopt;
    words.push_back(std::move(word));
  }
  return words;
}

void WordCollector::add(Word word) {
  if (word.kind == Word::kSaid) {
    const auto same = said_.find(word.text);
    // Not past a later word of one of these ranks.
    const auto is_before = [&](std::int32_t rank) {
      const auto last = last_of_.find(rank);
      return last == last_of_.end() || last->second < same->second;
    };
    if (same != said_.end() && std::all_of(word.ranks.begin(), word.ranks.end(), is_before)) {
      Ranks& ranks = words_[same->second].ranks;
      const auto middle = static_cast<std::ptrdiff_t>(ranks.size());
      ranks.insert(ranks.end(), word.ranks.begin(), word.ranks.end());
      std::inplace_merge(ranks.begin(), ranks.begin() + middle, ranks.end());
      for (const std::int32_t rank : word.ranks) last_of_[rank] = same->second;
      return;
    }
    said_[word.text] = words_.size();
  }
  for (const std::int32_t rank : word.ranks) last_of_[rank] = words_.size();
  words_.push_back(std::move(word));
}

// In the order of arrival: the last message of a rank must come last.
std::string WordCollector::take() {
  WireWriter out;
  for (const Word& word : words_) {
    out.u8(word.kind);
    write_ranks(out, word.ranks);
    out.text(word.text);
  }
  words_.clear();
  said_.clear();
  last_of_.clear();
  return out.take();
}

std::string passage_to_all(std::string_view text) {
  std::string message(1, static_cast<char>(kToAll));
  message += text;
  return message;
}

std::string passage_to(const Ranks& ranks, std::string_view text) {
  WireWriter out;
  out.u8(kToSome);
  write_ranks(out, ranks);
  std::string message = out.take();
  message += text;
  return message;
}

std::optional<Passage> decode_passage(std::string_view message, std::int32_t size) {
  WireReader in(message);
  Passage passage;
  const std::uint8_t kind = in.u8();
  if (kind == kToSome) {
    passage.ranks = read_ranks(in, size);
  } else if (kind != kToAll) {
    return std::nullopt;
  }
  if (!in.ok()) return std::nullopt;
  passage.to_all = kind == kToAll;
  passage.text = in.rest();
  return passage;
}

}  // namespace hora::collectives
