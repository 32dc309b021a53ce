// SPDX-License-Identifier: Apache-2.0
// A change in all places.  [pure]
#pragma once

#include <string>
#include <string_view>

namespace hora {

// Puts `by` in the place of each `what`, which is not empty. What has come in is not looked at
// again.
inline void replace_all(std::string& text, std::string_view what, std::string_view by) {
  for (std::size_t at = text.find(what); at != std::string::npos;
       at = text.find(what, at + by.size())) {
    text.replace(at, what.size(), by);
  }
}

}  // namespace hora
