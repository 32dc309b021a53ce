// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/base/text.h"

#include <algorithm>
#include <cstdint>

namespace hora {

std::string_view trim(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const auto first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return text.substr(text.size());
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const auto at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

std::string join(const std::vector<std::string>& parts, std::string_view separator) {
  std::string out;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) out += separator;
    out += parts[i];
  }
  return out;
}

std::string noun_for(std::uint64_t count, std::string_view noun) {
  std::string word(noun);
  if (count == 1 || word.empty()) return word;
  if (word.back() == 's') return word + "es";
  if (word.back() != 'y') return word + 's';
  word.pop_back();
  return word + "ies";
}

std::string counted(std::uint64_t count, std::string_view noun) {
  return std::to_string(count) + ' ' + noun_for(count, noun);
}

namespace {

// Length of the well-formed UTF-8 sequence of a printable character at the front; 0 if there is
// none. Strict: no overlong form, no surrogate, nothing above U+10FFFF, no C1 control.
std::size_t printable_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint8_t first = byte(0);
  if (first < 0x80) return first >= 0x20 && first != 0x7f ? 1 : 0;
  const std::size_t length = first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  if (length == 0 || first > 0xf4 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  const std::uint8_t second = byte(1);
  // In order: C1 controls, overlong forms, surrogates, overlong forms, beyond U+10FFFF.
  if (first == 0xc2 && second < 0xa0) return 0;
  if (first == 0xe0 && second < 0xa0) return 0;
  if (first == 0xed && second >= 0xa0) return 0;
  if (first == 0xf0 && second < 0x90) return 0;
  if (first == 0xf4 && second >= 0x90) return 0;
  return length;
}

}  // namespace

// For texts from outside (a file name, what a peer sent): control characters cannot change the
// terminal, and where the text begins and ends is seen.
std::string quote(std::string_view text, std::size_t max_bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out = "'";
  std::size_t taken = 0;
  while (taken < text.size() && taken < max_bytes) {
    const std::string_view rest = text.substr(taken);
    const std::size_t length = printable_length(rest);
    if (length > 0) {
      out += rest.substr(0, length);
      taken += length;
      continue;
    }
    const auto byte = static_cast<std::uint8_t>(rest.front());
    out += "\\x";
    out += kDigits[byte >> 4];
    out += kDigits[byte & 15];
    ++taken;
  }
  out += taken < text.size() ? "'..." : "'";
  return out;
}

namespace {

bool is_continuation(char byte) { return (static_cast<std::uint8_t>(byte) & 0xc0) == 0x80; }

// U+2028 .. U+202E and U+2066 .. U+2069: ends of lines and of paragraphs, and marks that turn the
// direction in which what follows is shown.
bool turns_the_line(std::string_view character) {
  if (character.size() != 3 || character[0] != '\xe2') return false;
  const auto last = static_cast<std::uint8_t>(character[2]);
  return (character[1] == '\x80' && last >= 0xa8 && last <= 0xae) ||
         (character[1] == '\x81' && last >= 0xa6 && last <= 0xa9);
}

// The length of a sequence at the beginning of `text` that sets colours: ESC [ 1 ; 31 m.
std::size_t colour_length(std::string_view text) {
  if (!text.starts_with("\033[")) return 0;
  const std::size_t end = text.find_first_not_of("0123456789;:", 2);
  return end != std::string_view::npos && text[end] == 'm' ? end + 1 : 0;
}

}  // namespace

std::string visible(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    if (const std::size_t colour = colour_length(text); colour > 0) {
      text.remove_prefix(colour);
      continue;
    }
    std::size_t length = printable_length(text);
    if (length > 0 && !turns_the_line(text.substr(0, length))) {
      out += text.substr(0, length);
    } else if (text.front() == '\n' || text.front() == '\t') {
      out += text.front();
      length = 1;
    } else {
      out += '?';
      length = 1;
      while (length < text.size() && is_continuation(text[length])) ++length;
    }
    text.remove_prefix(length);
  }
  return out;
}

std::string visible_line(std::string_view text) {
  std::string out = visible(text);
  std::replace_if(
      out.begin(), out.end(), [](char c) { return c == '\n' || c == '\t'; }, ' ');
  return out;
}

std::string shortened(std::string_view text, std::size_t most) {
  if (text.size() <= most) return std::string(text);
  constexpr std::size_t kNote = 48;  // the longest
  // Cut at a character, never within one.
  std::size_t kept = most - kNote;
  while (kept > 0 && is_continuation(text[kept])) --kept;
  return std::string(text.substr(0, kept)) + " ... (" + std::to_string(text.size() - kept) +
         " bytes are left out)";
}

bool equals_ignoring_case(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(),
                                            [&](char x, char y) { return lower(x) == lower(y); });
}

}  // namespace hora
