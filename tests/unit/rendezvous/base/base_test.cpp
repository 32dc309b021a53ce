// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <string>

#include "rendezvous/base/encoding.h"
#include "rendezvous/base/hmac.h"
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

TEST_CASE("visible: what could steer a terminal becomes a question mark") {
  CHECK(visible("plain\ttext\n") == "plain\ttext\n");
  CHECK(visible("\x1b[2J\x07\x7f\r\0"s) == "?[2J????");
  CHECK(visible("\x1b[91mERROR\x1b[0m \x1b[1;38:2mred\x1b[m") == "ERROR red");
  CHECK(visible("\x1b[31") == "?[31");
  CHECK(visible("gr\xc3\xbc\xc3\x9f"
                "e \xf0\x9f\x98\x80") ==
        "gr\xc3\xbc\xc3\x9f"
        "e \xf0\x9f\x98\x80");
  CHECK(visible("\xc2\x9b"
                "2J \x9b"
                "2J") == "?2J ?2J");  // C1 controls
  CHECK(visible("a\xe2\x80\xae"
                "b") == "a?b");  // what follows is shown from right to left
  CHECK(visible("a\xe2\x81\xa6"
                "b") == "a?b");
  CHECK(visible("a\xe2\x80\xa8"
                "b") == "a?b");  // another end of a line
  CHECK(visible("\xe2\x82\xac") == "\xe2\x82\xac");
  CHECK(visible("cut \xe2\x82") == "cut ?");
  CHECK(visible_line("one\ntwo\tthree") == "one two three");
}

TEST_CASE("shortened: to the given number of bytes, at a whole character, with a note") {
  CHECK(shortened("short", 64) == "short");
  CHECK(shortened(std::string(64, 'x'), 64) == std::string(64, 'x'));
  CHECK(shortened(std::string(65, 'x'), 64) ==
        std::string(16, 'x') + " ... (49 bytes are left out)");
  std::string text = std::string(15, 'x');
  for (int i = 0; i < 50; ++i) text += "\xe2\x82\xac";
  CHECK(shortened(text, 64) == std::string(15, 'x') + " ... (150 bytes are left out)");
  CHECK(shortened(std::string(10'000'000, 'x'), 100).size() <= 100);
  CHECK(shortened(std::string(100, '\x80'), 64) == " ... (100 bytes are left out)");
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

TEST_CASE("counts agree with their nouns") {
  CHECK(counted(0, "rank") == "0 ranks");
  CHECK(counted(1, "rank") == "1 rank");
  CHECK(counted(2, "child process") == "2 child processes");
  CHECK(counted(1, "entry") == "1 entry");
  CHECK(counted(12, "entry") == "12 entries");
  CHECK(noun_for(1, "process") == "process");
  CHECK(noun_for(0, "host") == "hosts");
}

TEST_CASE("equals_ignoring_case is ASCII") {
  CHECK(equals_ignoring_case("Content-Length", "content-length"));
  CHECK_FALSE(equals_ignoring_case("a", "ab"));
  CHECK_FALSE(equals_ignoring_case("[", "{"));
}

TEST_CASE("base64 goes both ways") {
  for (const auto& [bytes, text] : {std::pair{""s, ""s},
                                    {"f"s, "Zg=="s},
                                    {"fo"s, "Zm8="s},
                                    {"foo"s, "Zm9v"s},
                                    {"foob"s, "Zm9vYg=="s},
                                    {"\xff\xfe\0"s, "//4A"s}}) {
    CHECK(to_base64(bytes) == text);
    CHECK(from_base64(text) == bytes);
  }
  CHECK(from_base64("Zm9\nvYg") == "foob"s);
  CHECK_FALSE(from_base64("Zm 9v").has_value());
}

TEST_CASE("HMAC-SHA1 as in RFC 2202") {
  CHECK(to_hex(hmac_sha1("Jefe", "what do ya want for nothing?")) ==
        "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79");
  CHECK(to_hex(hmac_sha1(std::string(80, '\xaa'),
                         "Test Using Larger Than Block-Size Key - Hash Key First")) ==
        "aa4ae5e15272d00e95705637ce8a3b55ed402112");
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

TEST_CASE("an error keeps its errno on the way up") {
  const Error full = errno_error(ENOSPC, "writing /x");
  CHECK(full.errnum == ENOSPC);
  CHECK(full.with_context("host b").errnum == ENOSPC);
  const Error taken = errno_error(ENOSPC, "writing /x").with_context("host b");
  CHECK(taken.errnum == ENOSPC);
  CHECK(taken.message == "host b: writing /x: No space left on device");
  CHECK(make_error(ErrorCode::kFailed, "No space left on device").errnum == 0);
}
