// SPDX-License-Identifier: Apache-2.0
// Lengths of time as users write them: "30", "30s", "1m30s", "500ms", "0.5h".  [pure]
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace hora::launcher {

inline constexpr std::string_view kDurationGrammar =
    "a time up to 365d, such as 30, 30s, 1m30s or 500ms";

// A number without a unit counts seconds; units ms, s, m, h, d, each at most once, larger ones
// first. At most 365 days. Nothing for anything else.
std::optional<std::chrono::milliseconds> parse_duration(std::string_view text);

// "1m30s": what parse_duration reads back as the same value.
std::string format_duration(std::chrono::milliseconds duration);

}  // namespace hora::launcher
