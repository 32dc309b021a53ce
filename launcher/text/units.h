// SPDX-License-Identifier: Apache-2.0
// Lengths of time and numbers of bytes, as users write and read them.  [pure]
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace hora::launcher {

// Lengths of time as users write them: "30", "30s", "1m30s", "500ms", "0.5h".

inline constexpr std::string_view kDurationGrammar =
    "a time up to 365d, such as 30, 30s, 1m30s or 500ms";

// A number without a unit counts seconds; units ms, s, m, h, d, each at most once, larger ones
// first. At most 365 days. Nothing for anything else.
std::optional<std::chrono::milliseconds> parse_duration(std::string_view text);

// "1m30s": what parse_duration reads back as the same value.
std::string format_duration(std::chrono::milliseconds duration);

// Numbers of bytes as users write them: "2G", "500M", "1.5g", "4096". Units are powers of 1024, as
// those of du and ls.

inline constexpr std::string_view kSizeGrammar = "a size such as 500M or 2G";

// A number, then K, M, G or T; bytes without one. Nothing for anything else, or above 1024T.
std::optional<std::uint64_t> parse_size(std::string_view text);

// "12.4M": three digits or so, for people.
std::string format_size(std::uint64_t bytes);

// The nearest whole number of one that is not negative. For llround() alone each launch would load
// libm.
inline std::int64_t nearest(double number) {
  return static_cast<std::int64_t>(number + 0.5);  // NOLINT(bugprone-incorrect-roundings)
}

}  // namespace hora::launcher
