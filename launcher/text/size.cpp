// SPDX-License-Identifier: Apache-2.0
// "GB" and "GiB" are not accepted: for half of the readers, one of them means something else.
#include "launcher/text/size.h"

#include <charconv>
#include <cmath>

namespace hora::launcher {

namespace {

constexpr std::string_view kUnits = "KMGT";
// Far above any disk; beyond it a double would no longer hold every byte.
constexpr double kLargest = 1024.0 * 1024 * 1024 * 1024 * 1024;

}  // namespace

std::optional<std::uint64_t> parse_size(std::string_view text) {
  double value = 0;
  // from_chars ignores the locale. It would take a sign and "inf"; a size has neither.
  if (text.empty() || (text[0] != '.' && (text[0] < '0' || text[0] > '9'))) return std::nullopt;
  const char* const end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, value, std::chars_format::fixed);
  if (error != std::errc{}) return std::nullopt;
  std::string_view unit(stopped, static_cast<std::size_t>(end - stopped));
  if (unit.size() > 1) return std::nullopt;
  if (!unit.empty()) {
    const char letter = static_cast<char>(unit[0] & ~('a' ^ 'A'));  // upper case
    const std::size_t power = kUnits.find(letter);
    if (power == std::string_view::npos) return std::nullopt;
    value = std::ldexp(value, 10 * (static_cast<int>(power) + 1));
  }
  if (value > kLargest) return std::nullopt;
  // As in parse_duration().
  return static_cast<std::uint64_t>(value + 0.5);  // NOLINT(bugprone-incorrect-roundings)
}

}  // namespace hora::launcher
