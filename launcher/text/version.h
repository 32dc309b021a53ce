// SPDX-License-Identifier: Apache-2.0
// Versions, compared.  [pure]
#pragma once

#include <string_view>

namespace hora::launcher {

// Below 0, 0, above 0. By numbers, part by part: "2.10" is larger than "2.9". Suffixes such as
// "+cu118" and "-rc1" do not count.
int compare_versions(std::string_view a, std::string_view b);

}  // namespace hora::launcher
