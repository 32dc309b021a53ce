// SPDX-License-Identifier: Apache-2.0
#include "launcher/store/cache_choice.h"

#include <chrono>
#include <set>

#include "tests/support/catch.h"

using namespace hora::launcher;
using namespace std::chrono_literals;

namespace {

using Names = std::vector<std::string>;
constexpr auto kDay = std::chrono::hours(24);

// Entries of a part of their own, and of a part that "with core" entries share.
CacheItem item(const std::string& name, std::chrono::seconds unused, std::uint64_t bytes,
               bool with_core = false) {
  CacheItem made{name, unused, {{"of " + name, bytes}}, false};
  if (with_core) made.pieces.push_back({"core", 100});
  return made;
}

CacheItem used(CacheItem item) {
  item.in_use = true;
  return item;
}

CacheLimits older_than(std::chrono::seconds age) { return {age, std::nullopt}; }
CacheLimits at_most(std::uint64_t bytes) { return {std::nullopt, bytes}; }

}  // namespace

TEST_CASE("cache choice: entries that have not been used for longer than the limit go") {
  const auto choice = choose_removals(
      {item("new", 1 * kDay, 10), item("old", 40 * kDay, 10), item("older", 50 * kDay, 10),
       item("at the limit", 30 * kDay, 10), used(item("in use", 60 * kDay, 10))},
      older_than(30 * kDay));
  CHECK(choice.remove == Names{"older", "old", "at the limit"});
  CHECK(choice.kept == Names{"in use"});
}

TEST_CASE("cache choice: the least recently used go until the rest fits") {
  const std::vector<CacheItem> items{item("a", 1h, 10), item("b", 2h, 20), item("c", 3h, 30),
                                     item("d", 4h, 40)};
  CHECK(choose_removals(items, at_most(100)).remove.empty());
  CHECK(choose_removals(items, at_most(99)).remove == Names{"d"});
  CHECK(choose_removals(items, at_most(60)).remove == Names{"d"});
  CHECK(choose_removals(items, at_most(59)).remove == Names{"d", "c"});
  CHECK(choose_removals(items, at_most(1)).remove == Names{"d", "c", "b", "a"});
}

TEST_CASE("cache choice: what is in use counts and stays") {
  const auto choice =
      choose_removals({item("a", 1h, 10), used(item("b", 2h, 50)), item("c", 3h, 30)}, at_most(55));
  CHECK(choice.remove == Names{"c", "a"});
  CHECK(choice.kept == Names{"b"});
}

TEST_CASE("cache choice: shared parts take room until the last one goes") {
  const std::vector<CacheItem> items{item("a", 1h, 1, true), item("b", 2h, 2, true),
                                     item("c", 3h, 3, true)};
  CHECK(total_bytes(items) == 106);
  CHECK(choose_removals(items, at_most(106)).remove.empty());
  CHECK(choose_removals(items, at_most(101)).remove == Names{"c", "b"});
  CHECK(choose_removals(items, at_most(100)).remove == Names{"c", "b", "a"});
}

TEST_CASE("cache choice: both limits hold, and none means all") {
  const std::vector<CacheItem> items{item("a", 1h, 10), item("b", 2 * kDay, 10),
                                     item("c", 40 * kDay, 10), used(item("d", 1h, 10))};
  CHECK(choose_removals(items, {std::chrono::seconds(30 * kDay), 20}).remove == Names{"c", "b"});
  CHECK(choose_removals(items, {}).remove == Names{"c", "b", "a"});
  CHECK(choose_removals(items, {}).kept == Names{"d"});
  CHECK(choose_removals({}, {}).remove.empty());
}

TEST_CASE("cache choice: hosts that see the same choose the same") {
  std::vector<CacheItem> items{item("b", 1h, 10), item("a", 1h, 10), item("c", 1h, 10)};
  CHECK(choose_removals(items, at_most(25)).remove == Names{"a"});
  std::swap(items[0], items[2]);
  CHECK(choose_removals(items, at_most(25)).remove == Names{"a"});
}
