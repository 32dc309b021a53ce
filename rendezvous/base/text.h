// SPDX-License-Identifier: Apache-2.0
// Text: splitting, joining, numbers.  [pure]
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace hora {

// A change in all places.

// In any locale, unlike <cctype>'s.
inline bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Replaces each `what`, which is not empty, with `by`. The replacement is not searched again.
inline void replace_all(std::string& text, std::string_view what, std::string_view by) {
  for (std::size_t at = text.find(what); at != std::string::npos;
       at = text.find(what, at + by.size())) {
    text.replace(at, what.size(), by);
  }
}

// Small operations on text that a user or a peer wrote.

// Without the blanks, tabs, CR and LF at both ends.
std::string_view trim(std::string_view text);

// The parts between separators, empty ones included: "a,,b" gives three, "" gives one.
// The views point into `text`.
std::vector<std::string_view> split(std::string_view text, char separator);

std::string join(const std::vector<std::string>& parts, std::string_view separator);

// "1 rank", "2 ranks", "3 processes"; noun_for() is the word alone. `noun` is a singular whose
// plural is regular: -s, -es after an s, -ies for a y.
std::string noun_for(std::uint64_t count, std::string_view noun);
std::string counted(std::uint64_t count, std::string_view noun);

// The whole of `text` as a decimal number that fits T: no sign but a leading '-' for a signed T, no
// blanks, nothing after it. Anything else is not a number.
template <typename T>
std::optional<T> parse_int(std::string_view text) {
  static_assert(std::is_integral_v<T>);
  T value{};
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || stopped != end) return std::nullopt;
  return value;
}

// `text` in single quotes for an error message: control characters and bytes that are not UTF-8
// as \xNN, and at most `max_bytes` of it, so that a message stays one printable line.
std::string quote(std::string_view text, std::size_t max_bytes = 200);

// `text` without colours, and with a '?' for each thing that could steer a terminal or change how a
// line reads: control characters but tabs and line feeds, bytes that are not UTF-8, marks of
// writing direction.
std::string visible(std::string_view text);
// The same on one line: line ends and tabs become blanks.
std::string visible_line(std::string_view text);

// At most `most` bytes, no character cut; where something is left out, the end says how much.
// `most` has room for that note: 64 or more.
std::string shortened(std::string_view text, std::size_t most);

// ASCII only, as host names and header names are.
bool equals_ignoring_case(std::string_view a, std::string_view b);

}  // namespace hora
