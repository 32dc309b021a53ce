// SPDX-License-Identifier: Apache-2.0
#include "launcher/text/version.h"

#include <algorithm>

#include "rendezvous/base/text.h"

namespace hora::launcher {

int compare_versions(std::string_view a, std::string_view b) {
  const auto left = split(a.substr(0, a.find_first_of("+-")), '.');
  const auto right = split(b.substr(0, b.find_first_of("+-")), '.');
  for (std::size_t i = 0; i < std::max(left.size(), right.size()); ++i) {
    const auto x = i < left.size() ? parse_int<long>(left[i]).value_or(0) : 0;
    const auto y = i < right.size() ? parse_int<long>(right[i]).value_or(0) : 0;
    if (x != y) return x < y ? -1 : 1;
  }
  return 0;
}

}  // namespace hora::launcher
