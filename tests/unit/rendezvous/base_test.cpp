#include <string>

#include "rendezvous/base/hex.h"
#include "rendezvous/base/result.h"
#include "rendezvous/base/text.h"
#include "tests/support/catch.h"

using namespace hora;
using namespace std::string_literals;

TEST_CASE("trim takes blanks of both ends and nothing else") {
  CHECK(trim("  a b\r\n") == "a b");
  CHECK(trim("") == "");
  CHECK(trim(" \t\r\n") == "");
  CHECK(trim("x") == "x");
}

TEST_CASE("split keeps empty parts") {
  CHECK(split("", ',') == std::vector<std::string_view>{""});
  CHECK(split("a", ',') == std::vector<std::string_view>{"a"});
  CHECK(split(",a,,b,", ',') == std::vector<std::string_view>{"", "a", "", "b", ""});
}

TEST_CASE("join is the inverse of split") {
  CHECK(join({}, ",") == "");
  CHECK(join({"a"}, ",") == "a");
  CHECK(join({"a", "", "b"}, ", ") == "a, , b");
}

TEST_CASE("parse_int takes a whole number that fits, and nothing else") {
  CHECK(parse_int<int>("42") == 42);
  CHECK(parse_int<int>("-7") == -7);
  CHECK(parse_int<int>("007") == 7);
  CHECK(parse_int<std::uint16_t>("65535") == 65535);
  CHECK(parse_int<std::int64_t>("9223372036854775807") == INT64_MAX);
  for (const auto* text : {"", " 1", "1 ", "+1", "1x", "0x10", "1.0", "--1", "-", "2147483648"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_int<int>(text).has_value());
  }
  CHECK_FALSE(parse_int<std::uint16_t>("65536").has_value());
  CHECK_FALSE(parse_int<unsigned>("-1").has_value());
  CHECK_FALSE(parse_int<int>("1\0"s).has_value());
}

TEST_CASE("quote keeps a message on one printable line") {
  CHECK(quote("plain") == "'plain'");
  CHECK(quote("tab\there") == "'tab\\x09here'");
  CHECK(quote("nul\0"s) == "'nul\\x00'");
  CHECK(quote("\x7f") == "'\\x7f'");
  CHECK(quote("gr\xc3\xbc\xc3\x9f"
              "e \xe2\x82\xac \xf0\x9f\x98\x80") ==
        "'gr\xc3\xbc\xc3\x9f"
        "e \xe2\x82\xac \xf0\x9f\x98\x80'");
  // Overlong, surrogate, beyond Unicode, C1 control, cut short, stray continuation.
  CHECK(quote("\xc0\xaf") == "'\\xc0\\xaf'");
  CHECK(quote("\xed\xa0\x80") == "'\\xed\\xa0\\x80'");
  CHECK(quote("\xf4\x90\x80\x80") == "'\\xf4\\x90\\x80\\x80'");
  CHECK(quote("\xc2\x85") == "'\\xc2\\x85'");
  CHECK(quote("\xe2\x82") == "'\\xe2\\x82'");
  CHECK(quote("\x80") == "'\\x80'");
  CHECK(quote("abcdef", 3) == "'abc'...");
}

TEST_CASE("equals_ignoring_case is ASCII") {
  CHECK(equals_ignoring_case("Content-Length", "content-length"));
  CHECK_FALSE(equals_ignoring_case("a", "ab"));
  CHECK_FALSE(equals_ignoring_case("[", "{"));
}

TEST_CASE("hex goes both ways") {
  const std::string bytes = "\x00\x7f\xff\x10"s;
  CHECK(to_hex(bytes) == "007fff10");
  CHECK(from_hex("007FfF10") == bytes);
  CHECK(from_hex("") == ""s);
  CHECK_FALSE(from_hex("0").has_value());
  CHECK_FALSE(from_hex("0g").has_value());
}

TEST_CASE("secrets compare equal only when they are") {
  CHECK(equals_in_constant_time("", ""));
  CHECK(equals_in_constant_time("abc", "abc"));
  CHECK_FALSE(equals_in_constant_time("abc", "abd"));
  CHECK_FALSE(equals_in_constant_time("abc", "ab"));
}

TEST_CASE("an error gathers its context outermost first") {
  Error error = make_error(ErrorCode::kUnavailable, "connection refused");
  error = std::move(error).with_context("connecting to 10.0.0.2:22").with_context("host b");
  CHECK(error.message == "host b: connecting to 10.0.0.2:22: connection refused");
  CHECK(error.code == ErrorCode::kUnavailable);
}
