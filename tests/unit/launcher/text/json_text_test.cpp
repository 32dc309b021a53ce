// SPDX-License-Identifier: Apache-2.0
#include "launcher/text/json_text.h"

#include "tests/support/catch.h"

namespace hora::launcher {
namespace {

TEST_CASE("a JSON string has no quote, backslash or control character of the text as it is") {
  CHECK(json_text("/home/me/a \"b\" \\c") == R"("/home/me/a \"b\" \\c")");
  CHECK(json_text("a\nb\x1b\xff") == R"("a b??")");
  CHECK(json_text("") == R"("")");
}

}  // namespace
}  // namespace hora::launcher
