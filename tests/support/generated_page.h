// SPDX-License-Identifier: Apache-2.0
// Pages of docs/ that the code writes, or a part of. scripts/accept sets HORA_ACCEPT, by which they
// are written; else they must be as they would be. For tests that define HORA_SOURCE_DIR.
#pragma once

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/support/catch.h"

namespace hora::test {

inline std::string path_of_page(const std::string& page) {
  return std::string(HORA_SOURCE_DIR) + "/docs/" + page;
}

inline std::string read_page(const std::string& page) {
  std::ifstream file(path_of_page(page), std::ios::binary);
  return std::string((std::istreambuf_iterator<char>(file)), {});
}

inline void expect_page(const std::string& page, const std::string& text) {
  if (std::getenv("HORA_ACCEPT") != nullptr) {
    std::ofstream(path_of_page(page), std::ios::binary) << text;
  }
  CHECK(read_page(page) == text);
}

// The page has `text` between its two marks. One that is made from several sources has two for
// each, after the name of the source.
inline void expect_in_page(const std::string& page, const std::string& text,
                           const std::string& source = "") {
  constexpr std::string_view kBegin = ": begin -->\n";
  const std::string old = read_page(page);
  const std::size_t begin = old.find(kBegin, old.find(source));
  const std::size_t end = old.find("<!-- end -->", begin);
  INFO(page);
  REQUIRE(begin != std::string::npos);
  REQUIRE(end != std::string::npos);
  expect_page(page, old.substr(0, begin + kBegin.size()) + text + old.substr(end));
}

}  // namespace hora::test
