// SPDX-License-Identifier: Apache-2.0
#include "collectives/control/tree_frames.h"

#include <numeric>
#include <vector>

#include "tests/support/catch.h"

using namespace hora::collectives;

TEST_CASE("every host has a way to the first one, and few hosts directly below it") {
  constexpr int kHosts = 40'000;
  std::vector<int> below(kHosts);
  std::vector<int> depth(kHosts);
  int deepest = 0;
  for (int host = 1; host < kHosts; ++host) {
    const int above = host_above(host);
    REQUIRE(above >= 0);
    REQUIRE(above < host);
    ++below[static_cast<std::size_t>(above)];
    const int steps = depth[static_cast<std::size_t>(above)] + 1;
    depth[static_cast<std::size_t>(host)] = steps;
    deepest = std::max(deepest, steps);
  }
  CHECK(deepest == 4);
  for (int host = 0; host < kHosts; ++host) {
    const int count = below[static_cast<std::size_t>(host)];
    REQUIRE(count <= 4 * (kTreeFan - 1));
    REQUIRE(has_hosts_below(host, kHosts) == (count > 0));
  }
}

TEST_CASE("the hosts of a small job are directly below the first one") {
  for (int host = 1; host < kTreeFan; ++host) CHECK(host_above(host) == 0);
  CHECK(has_hosts_below(0, 2));
  CHECK(!has_hosts_below(0, 1));
  CHECK(!has_hosts_below(5, kTreeFan));
  CHECK(!has_hosts_below(kTreeFan, kTreeFan + 1));
}

using namespace hora::collectives;

namespace {

std::vector<Word> passed_on(std::vector<Word> words) {
  WordCollector collector;
  for (Word& each : words) collector.add(std::move(each));
  const auto decoded = decode_words(collector.take(), 1000);
  REQUIRE(decoded);
  CHECK(collector.empty());
  return *decoded;
}

}  // namespace

TEST_CASE("ranks travel as runs") {
  Ranks many(900);
  std::iota(many.begin(), many.end(), 100);
  for (const Ranks& ranks :
       {Ranks{}, Ranks{0}, Ranks{999}, Ranks{1, 3, 5}, Ranks{7, 8, 9, 20}, many}) {
    WireWriter out;
    write_ranks(out, ranks);
    const std::string bytes = out.take();
    CHECK(bytes.size() <= 1 + 3 * ranks.size());
    WireReader in(bytes);
    CHECK(read_ranks(in, 1000) == ranks);
    CHECK(in.ok());
    CHECK(in.at_end());
  }
}

TEST_CASE("ranks beyond the world are malformed") {
  WireWriter out;
  write_ranks(out, {5, 6, 7});
  const std::string bytes = out.take();
  WireReader in(bytes);
  CHECK(read_ranks(in, 7).empty());
  CHECK(!in.ok());
}

TEST_CASE("ranks that say the same share a word") {
  const auto words = passed_on({{Word::kSaid, {3}, "a"},
                                {Word::kSaid, {1}, "a"},
                                {Word::kSaid, {2}, "b"},
                                {Word::kSaid, {7, 8}, "a"}});
  CHECK(words == std::vector<Word>{{Word::kSaid, {1, 3, 7, 8}, "a"}, {Word::kSaid, {2}, "b"}});
}

TEST_CASE("the words of a rank stay in order, however many say the same") {
  const auto words = passed_on({{Word::kSaid, {1}, "a"},
                                {Word::kSaid, {2}, "b"},
                                {Word::kSaid, {2}, "a"},  // not before its own "b"
                                {Word::kSaid, {1}, "a"},  // again: not the same word twice
                                {Word::kGone, {3}, "a"},  // another kind
                                {Word::kSaid, {4}, "a"}});
  CHECK(words == std::vector<Word>{{Word::kSaid, {1}, "a"},
                                   {Word::kSaid, {2}, "b"},
                                   {Word::kSaid, {1, 2, 4}, "a"},
                                   {Word::kGone, {3}, "a"}});
}

TEST_CASE("a passage is for all or for some") {
  const std::string for_all = passage_to_all("text");
  const auto all = decode_passage(for_all, 10);
  REQUIRE(all);
  CHECK(all->to_all);
  CHECK(all->text == "text");
  const std::string for_some = passage_to({2, 3, 9}, "");
  const auto some = decode_passage(for_some, 10);
  REQUIRE(some);
  CHECK(!some->to_all);
  CHECK(some->ranks == Ranks{2, 3, 9});
  CHECK(some->text.empty());
}

TEST_CASE("cut or wrong bytes are malformed") {
  CHECK(!decode_passage("", 10));
  CHECK(!decode_passage("\x07text", 10));
  const std::string passage = passage_to({2, 3, 9}, "");
  for (std::size_t size = 0; size < passage.size(); ++size) {
    CHECK(!decode_passage(passage.substr(0, size), 10));
  }
  WordCollector collector;
  collector.add({Word::kSaid, {1, 2}, "text"});
  const std::string words = collector.take();
  for (std::size_t size = 1; size < words.size(); ++size) {
    CHECK(!decode_words(words.substr(0, size), 10));
  }
  CHECK(!decode_words("\x09", 10));
}
