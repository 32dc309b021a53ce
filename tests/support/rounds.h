// SPDX-License-Identifier: Apache-2.0
// How long a random test goes on: HORA_TEST_ROUNDS, or what the default run has.
#pragma once

#include <algorithm>
#include <cstdlib>

namespace hora::test {

inline int rounds(int usual) {
  const char* text = std::getenv("HORA_TEST_ROUNDS");
  return text == nullptr ? usual : std::max(1, std::atoi(text));
}

}  // namespace hora::test
