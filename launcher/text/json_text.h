// SPDX-License-Identifier: Apache-2.0
// JSON for programs that carry no JSON library.  [pure]
#pragma once

#include <string>
#include <string_view>

namespace hora::launcher {

// `text` as a JSON string, in its quotes. What visible_line() replaces, as control characters, is
// replaced.
std::string json_text(std::string_view text);

}  // namespace hora::launcher
