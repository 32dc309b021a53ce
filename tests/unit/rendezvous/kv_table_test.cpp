// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/kv_table.h"

#include "rendezvous/kv_target.h"
#include "tests/support/catch.h"

using namespace hora::rendezvous;

TEST_CASE("a table counts the bytes of keys and values, also of those that replace others") {
  KvTable table({.total_bytes = 10});
  table.store("s", "ab", "1234");
  CHECK(table.stored_bytes() == 6);
  CHECK_FALSE(table.has_room("s", "c", 4));
  CHECK(table.has_room("s", "ab", 8));  // the old value makes room
  table.store("s", "ab", "12345678");
  CHECK(table.stored_bytes() == 10);
  CHECK(table.key_count() == 1);
  CHECK(table.room_after(0) == 0);
  table.remove("s", "ab");
  CHECK(table.stored_bytes() == 0);
  CHECK(table.scope_count() == 0);
  CHECK(table.room_after(4) == 6);
  CHECK(table.room_after(11) == 0);
}

TEST_CASE("a full table still takes the keys that it has") {
  KvTable table({.keys = 1});
  table.store("s", "a", "1");
  CHECK(table.has_room("s", "a", 1));
  CHECK_FALSE(table.has_room("s", "b", 1));
  CHECK_FALSE(table.has_room("other", "a", 1));
  CHECK_FALSE(table.has_room_for(1, 1));
}

TEST_CASE("a batch is made once between two writes") {
  KvTable table({});
  CHECK(table.batch("s") == nullptr);
  table.store("s", "b", "2");
  table.store("s", "a", "1");
  const auto first = table.batch("s");
  const auto entries = decode_batch(*first);
  REQUIRE(entries);
  CHECK(entries->size() == 2);
  CHECK(table.batch("s") == first);
  table.store("s", "a", "3");
  CHECK(table.batch("s") != first);
}

TEST_CASE("a scope of known size loses its values when all its processes are done") {
  KvTable table({});
  table.begin_round({{"known", 2}});
  table.store("known", "a", "1");
  table.remove("known", "0");
  table.remove("known", "0");  // a repeated request
  CHECK(table.find("known", "a") != nullptr);
  table.remove("known", "1");
  CHECK(table.find("known", "a") == nullptr);
  CHECK(table.contains("known"));
  table.begin_round({});
  CHECK_FALSE(table.contains("known"));
}
