// SPDX-License-Identifier: Apache-2.0
#include "launcher/protocol/cbor.h"

#include <limits>

#include <nlohmann/json.hpp>

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
