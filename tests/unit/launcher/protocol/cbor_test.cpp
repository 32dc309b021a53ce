// SPDX-License-Identifier: Apache-2.0
#include "launcher/protocol/cbor.h"

#include <limits>
#include <string>

#include <nlohmann/json.hpp>

#include "launcher/protocol/messages.h"
#include "tests/support/catch.h"

using namespace hora::launcher;
using nlohmann::json;

namespace {

constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();

}  // namespace

TEST_CASE("numbers are as short as CBOR has them, and read as written") {
  for (const std::uint64_t number :
       {std::uint64_t{0}, std::uint64_t{23}, std::uint64_t{24}, std::uint64_t{255},
        std::uint64_t{256}, std::uint64_t{65'535}, std::uint64_t{65'536},
        std::uint64_t{0xffff'ffff}, std::uint64_t{0x1'0000'0000}, kMost}) {
    CAPTURE(number);
    std::string bytes;
    append_cbor_head(bytes, CborKind::kUnsigned, number);
    std::string expected;
    json::to_cbor(json(number), expected);
    CHECK(bytes == expected);
    std::string_view rest(bytes);
    const CborItem item = take_cbor_item(rest);
    CHECK(item.kind == CborKind::kUnsigned);
    CHECK(item.number == number);
    CHECK(rest.empty());
  }
}

TEST_CASE("a value is skipped with all that it holds") {
  std::string bytes;
  json::to_cbor(json{{"a", {1, {2, 3}, "text"}}, {"b", {{"c", nullptr}}}, {"d", -5}}, bytes);
  append_cbor_string(bytes, CborKind::kBytes, "behind");
  std::string_view rest(bytes);
  skip_cbor_value(rest);
  CHECK(take_cbor_item(rest).string == "behind");
  CHECK(rest.empty());
}

TEST_CASE("an item that is cut short is none") {
  CborItem item;
  for (std::string_view bytes :
       {std::string_view(), std::string_view("\x19\x01"), std::string_view("\x1b\0\0\0\0\0\0\0", 8),
        std::string_view("\x1c"), std::string_view("\x5f")}) {
    CHECK_FALSE(take_cbor_head(bytes, item));
  }
}

using namespace hora::launcher;

namespace {

std::string bytes_of(std::initializer_list<int> values) {
  std::string bytes;
  for (const int value : values) bytes.push_back(static_cast<char>(value));
  return bytes;
}

}  // namespace

TEST_CASE("messages have the shape of messages") {
  HostOrder order;
  order.argv = {"a", std::string(70'000, 'x')};
  order.environment.assign(5'000, {"NAME", "value"});
  order.ranks.resize(200);
  CHECK(check_cbor_shape(encode(order)));
  CHECK(check_cbor_shape(encode(Hello{})));
  CHECK(check_cbor_shape(encode(RankExit{})));
}

TEST_CASE("shapes that are refused before the parser sees them") {
  const auto refused = [](const std::string& bytes) { return !check_cbor_shape(bytes); };
  CHECK(refused(""));
  CHECK(refused(bytes_of({0xa1, 0x61})));  // a map that ends early
  CHECK(
      refused(bytes_of({0x9b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})));  // 2^64 - 1 items
  CHECK(refused(bytes_of({0xbb, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})));
  CHECK(refused(bytes_of({0x5b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})));
  CHECK(refused(bytes_of({0x42, 0x00})));                    // a string that ends early
  CHECK(refused(bytes_of({0x9f, 0xff})));                    // indefinite length
  CHECK(refused(bytes_of({0x1c})));                          // reserved
  CHECK(refused(bytes_of({0x19, 0x01})));                    // half a number
  CHECK(refused(bytes_of({0xfb, 0, 0, 0, 0, 0, 0, 0, 0})));  // a float
  CHECK(refused(bytes_of({0xc1, 0x00})));                    // a tag
  CHECK(refused(bytes_of({0x00, 0x00})));                    // two values
  CHECK(refused(std::string(1'000'000, '\x81')));            // a million arrays in one another
  CHECK(refused(std::string(kMaxCborDepth + 1, '\x81') + '\0'));
  CHECK(check_cbor_shape(std::string(kMaxCborDepth, '\x81') + '\0'));
}

TEST_CASE("a list with more parts than any message has") {
  const std::size_t count = kMaxCborItems;
  std::string bytes =
      bytes_of({0x9a, static_cast<int>(count >> 24), static_cast<int>(count >> 16 & 255),
                static_cast<int>(count >> 8 & 255), static_cast<int>(count & 255)});
  bytes.append(count, '\0');
  CHECK(!check_cbor_shape(bytes));
}

TEST_CASE("a hostile length is an error of the message, not an exception") {
  const auto hello = decode<Hello>(
      bytes_of({0xa1, 0x61, 'a', 0xbb, 0xbb, 0xbb, 0xbb, 0xbb, 0xbb, 0xbb, 0xbb, 0xbb}));
  REQUIRE(!hello);
  CHECK(hello.error().message == "hello: a list is longer than the message");
}
