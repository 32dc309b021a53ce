// SPDX-License-Identifier: Apache-2.0
#include <random>

#include "launcher/text/columns.h"
#include "launcher/text/duration.h"
#include "launcher/text/shell_words.h"
#include "launcher/text/size.h"
#include "tests/support/catch.h"

namespace hora::launcher {
namespace {

using std::chrono::milliseconds;
using Words = std::vector<std::string>;

TEST_CASE("Durations are read as people write them") {
  CHECK(parse_duration("30") == milliseconds(30'000));
  CHECK(parse_duration("30s") == milliseconds(30'000));
  CHECK(parse_duration("1m30s") == milliseconds(90'000));
  CHECK(parse_duration("500ms") == milliseconds(500));
  CHECK(parse_duration("0.5h") == milliseconds(1'800'000));
  CHECK(parse_duration("1d2h") == milliseconds(93'600'000));
  CHECK(parse_duration("0") == milliseconds(0));
  for (const std::string_view text : {"", "s", "-1", "+1", "1x", "1 s", "30s1m", "1m30", "1s1s",
                                      "1e3", "inf", "nan", ".", "1..2", "400d", "1S", "0x10"}) {
    INFO(text);
    CHECK_FALSE(parse_duration(text));
  }
}

TEST_CASE("A printed duration is read back") {
  std::mt19937 random(3);
  for (int round = 0; round < 1000; ++round) {
    const milliseconds duration(random() % 2'000'000'000);
    CHECK(parse_duration(format_duration(duration)) == duration);
  }
}

TEST_CASE("Sizes are read and printed as du has them") {
  CHECK(parse_size("4096") == 4096u);
  CHECK(parse_size("500M") == 500u << 20);
  CHECK(parse_size("2g") == std::uint64_t{2} << 30);
  CHECK(parse_size("1.5K") == 1536u);
  CHECK(parse_size("1T") == std::uint64_t{1} << 40);
  CHECK(parse_size("0") == 0u);
  for (const std::string_view text : {"", "G", "-1", "+1", "1GB", "1 G", "1x", "inf", "nan", ".",
                                      "1..2", "0x10", "1e3", "2000T"}) {
    INFO(text);
    CHECK_FALSE(parse_size(text));
  }
  CHECK(format_size(0) == "0");
  CHECK(format_size(1023) == "1023");
  CHECK(format_size(1536) == "1.5K");
  CHECK(format_size(std::uint64_t{250} << 20) == "250M");
  CHECK(format_size(std::uint64_t{2} << 30) == "2.0G");
}

TEST_CASE("Columns have their width in characters, and what is left out is told") {
  CHECK(column("a", 4) == "a   ");
  CHECK(column("", 4) == "-   ");
  CHECK(column("abcd", 4) == "abcd  ");
  CHECK(column("\xc3\xbc\xe2\x82\xac", 4) == "\xc3\xbc\xe2\x82\xac  ");
  CHECK(shortened("abcdef", 6) == "abcdef");
  CHECK(shortened("abcdefg", 6) == "abc...");
  CHECK(shortened("\xc3\xbc\xc3\xbc\xc3\xbc\xc3\xbc\xc3\xbc", 4) == "\xc3\xbc...");
  CHECK(shortened("\xc3\xbc\xc3\xbc\xc3\xbc\xc3\xbc", 4) == "\xc3\xbc\xc3\xbc\xc3\xbc\xc3\xbc");
}

TEST_CASE("Words are split as a shell would") {
  CHECK(split_shell_words("ssh -q  -o 'A B' \"c \\\" d\\e\" f\\ g ''").value() ==
        Words{"ssh", "-q", "-o", "A B", "c \" d\\e", "f g", ""});
  CHECK(split_shell_words("a$b `c` \\").value() == Words{"a$b", "`c`", "\\"});
  CHECK(split_shell_words(" \t\n").value().empty());
  CHECK_FALSE(split_shell_words("a \"b"));
}

TEST_CASE("Quoted words are split back") {
  std::mt19937 random(9);
  const std::string bytes = "ab '\"\\$`\n\t~*=-\xff";
  for (int round = 0; round < 2000; ++round) {
    Words words(1 + random() % 3);
    for (std::string& word : words) {
      for (std::size_t k = random() % 6; k > 0; --k) word += bytes[random() % bytes.size()];
    }
    CHECK(split_shell_words(quote_shell_words(words)).value() == words);
  }
}

}  // namespace
}  // namespace hora::launcher
