// SPDX-License-Identifier: Apache-2.0
#include "launcher/transports/quoting.h"

#include "tests/support/catch.h"
#include "tests/unit/launcher/transports/shell_run.h"

namespace hora::launcher {
namespace {

using test::run_program;
using test::shells_here;

std::vector<std::string> hard_words() {
  std::vector<std::string> words = {
      "",    "plain", "two words", "it's", "'",    "''",       "\\",     "\\\\",  "a\\",
      "\\'", "'\\'",  "!",         "!!",   "a!b",  "$HOME",    "`id`",   "$(id)", "\"",
      "~",   "~root", "*",         "?",    "[a]",  "{a,b}",    "a=b",    "=ls",   "^x^y",
      "%1",  "#no",   "a#b",       ";",    "&",    "|",        "<>",     "(x)",   "-n",
      "--",  "\t",    " ",         "é",    "日本", "a'b\\c!d", "end\\",  "$",     "\x7f",
      "@",   ":",     "%s\\n",     "{",    "}",    ",",        "'!'\\!", "-e",    "\\!"};
  std::string all;
  for (int c = 1; c < 128; ++c) {
    if (c != '\n' && c != '\r') all += static_cast<char>(c);
  }
  words.push_back(all);
  words.push_back(std::string(900, '\''));
  return words;
}

// printf's own interpretation is out of the way: "%s" and a mark that ends the word.
std::string echo_program() { return "/usr/bin/printf '%s|' "; }

TEST_CASE("a word quoted for any shell arrives as it was in every login shell") {
  REQUIRE(shells_here(false).size() >= 3);
  for (const auto& shell : shells_here(false)) {
    for (const auto& word : hard_words()) {
      auto quoted = quote_for_any_shell(word);
      REQUIRE(quoted);
      auto argv = shell;
      argv.push_back(echo_program() + *quoted);
      INFO(shell[0] << " " << *quoted);
      const auto run = run_program(argv);
      CHECK(run.out == word + "|");
      CHECK(run.exit_code == 0);
    }
  }
}

TEST_CASE("what no shell can be given is an error") {
  using namespace std::string_literals;
  CHECK_FALSE(quote_for_any_shell("a\0b"s));
  CHECK_FALSE(quote_for_any_shell("a\nb"));
  CHECK_FALSE(quote_for_any_shell("a\rb"));
}

TEST_CASE("plain words stay readable") {
  CHECK(*quote_for_any_shell("--lease-ms") == "--lease-ms");
}

}  // namespace
}  // namespace hora::launcher
