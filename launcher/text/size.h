// SPDX-License-Identifier: Apache-2.0
// Numbers of bytes as users write them: "2G", "500M", "1.5g", "4096". Units are powers of 1024, as
// those of du and ls.  [pure]
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace hora::launcher {

inline constexpr std::string_view kSizeGrammar = "a size such as 500M or 2G";

// A number, then K, M, G or T; bytes without one. Nothing for anything else, or above 1024T.
std::optional<std::uint64_t> parse_size(std::string_view text);

// "12.4M": three digits or so, for people.
std::string format_size(std::uint64_t bytes);

}  // namespace hora::launcher
