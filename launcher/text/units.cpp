// SPDX-License-Identifier: Apache-2.0
#include "launcher/text/units.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>

namespace hora::launcher {

// Accepts "90", "1.5h" and "1h30m": units in descending order, each at most once; a number alone
// means seconds.

namespace {

struct Unit {
  std::string_view name;
  std::int64_t milliseconds;
};

constexpr std::array kUnits = {Unit{"d", 86'400'000}, Unit{"h", 3'600'000}, Unit{"m", 60'000},
                               Unit{"s", 1'000}, Unit{"ms", 1}};
// A year; beyond it the sum could overflow.
constexpr double kLongest = 365.0 * 86'400'000;

bool is_number_byte(char c) { return (c >= '0' && c <= '9') || c == '.'; }

// Returns the position of a unit in kUnits, or kUnits.size().
std::size_t find_unit(std::string_view name) {
  std::size_t place = 0;
  while (place < kUnits.size() && kUnits[place].name != name) ++place;
  return place;
}

}  // namespace

std::optional<std::chrono::milliseconds> parse_duration(std::string_view text) {
  if (text.empty()) return std::nullopt;
  double total = 0;
  std::size_t next_unit = 0;  // units before this one are used up
  bool is_first = true;
  while (!text.empty()) {
    std::size_t digits = 0;
    while (digits < text.size() && is_number_byte(text[digits])) ++digits;
    double value = 0;
    // from_chars ignores the locale.
    const auto [end, error] =
        std::from_chars(text.data(), text.data() + digits, value, std::chars_format::fixed);
    if (digits == 0 || error != std::errc{} || end != text.data() + digits) return std::nullopt;
    std::size_t letters = digits;
    while (letters < text.size() && !is_number_byte(text[letters])) ++letters;
    std::string_view name = text.substr(digits, letters - digits);
    if (name.empty() && is_first) name = "s";
    const std::size_t unit = find_unit(name);
    // A unit that is repeated or out of order is most likely a typo.
    if (unit == kUnits.size() || unit < next_unit) return std::nullopt;
    next_unit = unit + 1;
    is_first = false;
    total += value * static_cast<double>(kUnits[unit].milliseconds);
    if (total > kLongest) return std::nullopt;
    text.remove_prefix(letters);
  }
  return std::chrono::milliseconds(nearest(total));
}

std::string format_duration(std::chrono::milliseconds duration) {
  std::int64_t rest = duration.count();
  std::string out;
  for (const Unit& unit : kUnits) {
    if (rest < unit.milliseconds) continue;
    out += std::to_string(rest / unit.milliseconds) + std::string(unit.name);
    rest %= unit.milliseconds;
  }
  return out.empty() ? "0s" : out;
}

// "GB" and "GiB" are not accepted: for half of the readers, one of them means something else.

namespace {

constexpr std::string_view kSizeUnits = "KMGT";
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
    const std::size_t power = kSizeUnits.find(letter);
    if (power == std::string_view::npos) return std::nullopt;
    value = std::ldexp(value, 10 * (static_cast<int>(power) + 1));
  }
  if (value > kLargest) return std::nullopt;
  // As in parse_duration().
  return static_cast<std::uint64_t>(value + 0.5);  // NOLINT(bugprone-incorrect-roundings)
}

std::string format_size(std::uint64_t bytes) {
  std::size_t power = 0;
  while (power < kSizeUnits.size() && (bytes >> (10 * power)) >= 1024) ++power;
  // Bytes are exact, and have no unit to confuse them with.
  if (power == 0) return std::to_string(bytes);
  const std::uint64_t unit = std::uint64_t{1} << (10 * power);
  const std::uint64_t tenths = bytes / unit * 10 + (bytes % unit * 10 + unit / 2) / unit;
  std::string text = std::to_string(tenths / 10);
  if (tenths < 1000) text += "." + std::to_string(tenths % 10);
  return text + kSizeUnits[power - 1];
}

}  // namespace hora::launcher
