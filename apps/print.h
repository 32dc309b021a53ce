// SPDX-License-Identifier: Apache-2.0
// printf to a string.  [pure]
#pragma once

#include <cstdio>
#include <string>

namespace hora {

template <typename... Arguments>
std::string print(const char* format, Arguments... arguments) {
  std::string text(static_cast<std::size_t>(std::snprintf(nullptr, 0, format, arguments...)), '\0');
  std::snprintf(text.data(), text.size() + 1, format, arguments...);
  return text;
}

}  // namespace hora
