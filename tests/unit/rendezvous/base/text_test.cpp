// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/base/text.h"

#include "tests/support/catch.h"

namespace hora {
namespace {

std::string replaced(std::string text, std::string_view what, std::string_view by) {
  replace_all(text, what, by);
  return text;
}

TEST_CASE("every place is replaced, and what has come in is not looked at again") {
  CHECK(replaced("a.b.c", ".", "") == "abc");
  CHECK(replaced("aa", "a", "aa") == "aaaa");
  CHECK(replaced("ssh {host}", "{host}", "{host}x") == "ssh {host}x");
  CHECK(replaced("none", "x", "y") == "none");
}

}  // namespace
}  // namespace hora
