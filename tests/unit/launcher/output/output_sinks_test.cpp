// SPDX-License-Identifier: Apache-2.0
#include "launcher/output/output_sinks.h"

#include "tests/support/catch.h"

namespace hora::launcher {
namespace {

TEST_CASE("A file ends with a whole line") {
  const auto taken = [](std::string_view text, std::size_t room, bool in_line, bool is_empty) {
    return text.substr(0, whole_lines(text, room, in_line, is_empty));
  };
  CHECK(taken("ab\ncd\n", 6, false, true) == "ab\ncd\n");
  CHECK(taken("ab\ncd\n", 5, false, false) == "ab\n");
  CHECK(taken("ab\ncd\n", 2, false, false).empty());
  CHECK(taken("ab\ncd\n", 0, false, false).empty());
  // The file is empty, or has the start of the line.
  CHECK(taken("ab\ncd\n", 2, false, true) == "ab\n");
  CHECK(taken("ab\ncd\n", 0, true, false) == "ab\n");
  CHECK(taken("abcd", 2, false, true) == "abcd");
  CHECK(taken("abcd", 2, true, false) == "abcd");
  CHECK(taken("abcd", 2, false, false).empty());
}

}  // namespace
}  // namespace hora::launcher
