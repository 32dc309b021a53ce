// SPDX-License-Identifier: Apache-2.0
#include "launcher/transports/remote_command.h"

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

using Words = std::vector<std::string>;

Host host(std::string name, std::string user = "") {
  return {std::move(name), std::move(user), {}};
}

Words argv(const Words& command, const Host& where) {
  auto result = rsh_argv(command, where, "LINE");
  REQUIRE(result);
  return *result;
}

TEST_CASE("a command like ssh gets the host and the line") {
  CHECK(argv({"ssh", "-q"}, host("b")) == Words{"ssh", "-q", "b", "LINE"});
  CHECK(argv({"ssh"}, host("b", "me")) == Words{"ssh", "me@b", "LINE"});
  CHECK(argv({"/opt/bin/myrsh"}, host("b")) == Words{"/opt/bin/myrsh", "b", "LINE"});
  CHECK(argv({"ssh", "exec"}, host("b")) == Words{"ssh", "exec", "b", "LINE"});
}

TEST_CASE("a command that takes an argv gets a shell to run the line") {
  CHECK(argv({"kubectl", "exec", "-i"}, host("pod-0")) ==
        Words{"kubectl", "exec", "-i", "pod-0", "--", "sh", "-c", "LINE"});
  CHECK(argv({"/usr/bin/oc", "exec", "-i", "-n", "ns"}, host("p")) ==
        Words{"/usr/bin/oc", "exec", "-i", "-n", "ns", "p", "--", "sh", "-c", "LINE"});
  CHECK(argv({"docker", "exec", "-i"}, host("c")) ==
        Words{"docker", "exec", "-i", "c", "sh", "-c", "LINE"});
  CHECK(argv({"podman", "exec", "-i", "{host}"}, host("c")) ==
        Words{"podman", "exec", "-i", "c", "sh", "-c", "LINE"});
}

TEST_CASE("placeholders say where things go") {
  CHECK(argv({"x", "{host}", "{command}"}, host("b")) == Words{"x", "b", "LINE"});
  CHECK(argv({"x", "--on={}"}, host("b")) == Words{"x", "--on=b", "LINE"});
  CHECK(argv({"x", "-l", "{user}", "{host}"}, host("b", "me")) ==
        Words{"x", "-l", "me", "b", "LINE"});
  CHECK(argv({"x", "{target}:22"}, host("b", "me")) == Words{"x", "me@b:22", "LINE"});
  CHECK(argv({"x", "{target}"}, host("b")) == Words{"x", "b", "LINE"});
  CHECK(argv({"crun", "exec"}, host("c")) == Words{"crun", "exec", "c", "sh", "-c", "LINE"});
  CHECK(argv({"incus", "exec"}, host("c")) ==
        Words{"incus", "exec", "c", "--", "sh", "-c", "LINE"});
  CHECK(argv({"docker", "exec", "-u", "{user}", "-i"}, host("c", "me")) ==
        Words{"docker", "exec", "-u", "me", "-i", "c", "sh", "-c", "LINE"});
  CHECK(argv({"sh", "-c", "{command}"}, host("b")) == Words{"sh", "-c", "LINE", "b"});
  CHECK(argv({"x", "{unknown}", "{"}, host("b")) == Words{"x", "{unknown}", "{", "b", "LINE"});
}

TEST_CASE("what cannot work is refused") {
  const Host with_port{"b", "", {}, {}, 2222};
  CHECK(argv({"/usr/bin/ssh", "-p", "22"}, with_port) ==
        Words{"/usr/bin/ssh", "-p", "2222", "-p", "22", "b", "LINE"});
  CHECK(argv({"x", "-P", "{port}", "{host}"}, with_port) == Words{"x", "-P", "2222", "b", "LINE"});
  CHECK(argv({"x", "-P", "{port}", "{host}"}, host("b")) == Words{"x", "-P", "22", "b", "LINE"});
  CHECK_FALSE(rsh_argv({"docker", "exec", "-i"}, with_port, "LINE"));
  CHECK_FALSE(rsh_argv({}, host("b"), "LINE"));
  CHECK_FALSE(rsh_argv({""}, host("b"), "LINE"));
  CHECK_FALSE(rsh_argv({"x", "{user}"}, host("b"), "LINE"));
  CHECK_FALSE(rsh_argv({"docker", "exec", "-i"}, host("c", "me"), "LINE"));
  CHECK_FALSE(rsh_argv({"ssh"}, host("-oProxyCommand=evil"), "LINE"));
  CHECK_FALSE(rsh_argv({"ssh"}, host("b", "-x"), "LINE"));
}

}  // namespace
}  // namespace hora::launcher
