// SPDX-License-Identifier: Apache-2.0
#include "collectives/negotiation/probe_table.h"

#include <map>
#include <random>

#include "tests/support/catch.h"

using namespace hora::collectives;

namespace {

struct Thing {
  int name = -1;
};

auto is(int name) {
  return [name](const Thing& thing) { return thing.name == name; };
}

}  // namespace

TEST_CASE("probe table: the same as a map, whatever comes and goes, with hashes that collide") {
  for (const std::uint64_t spread : {1u, 3u, 50u, 1000u}) {
    std::mt19937 random(static_cast<unsigned>(spread));
    ProbeTable<Thing> table;
    std::map<int, std::uint64_t> expected;  // name -> hash
    const auto hash_of = [&](int name) { return static_cast<std::uint64_t>(name) % spread; };
    for (int turn = 0; turn < 20'000; ++turn) {
      const int name = static_cast<int>(random() % 200);
      const std::uint64_t hash = hash_of(name);
      const bool there = expected.count(name) > 0;
      const Thing* found = table.find(hash, is(name));
      REQUIRE((found != nullptr) == there);
      if (found != nullptr) REQUIRE(found->name == name);
      if (!there && random() % 2 == 0) {
        REQUIRE(table.insert(hash, Thing{name}).name == name);
        expected[name] = hash;
      } else if (random() % 2 == 0) {
        REQUIRE(table.take(hash, is(name)).name == (there ? name : -1));
        expected.erase(name);
      }
      REQUIRE(table.size() == expected.size());
    }
    std::size_t seen = 0;
    table.each([&](const Thing& thing) { seen += expected.count(thing.name); });
    CHECK(seen == expected.size());
    CHECK(table.take_all().size() == expected.size());
    CHECK(table.empty());
  }
}
