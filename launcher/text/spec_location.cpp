// SPDX-License-Identifier: Apache-2.0
// Errors in a specification show the line and a caret under the place, as compilers do.
#include "launcher/text/spec_location.h"

#include <algorithm>

#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

constexpr std::size_t kWindow = 72;  // bytes of the line that are shown

bool is_utf8_continuation(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

std::size_t count_characters(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(
      text.begin(), text.end(), [](char byte) { return !is_utf8_continuation(byte); }));
}

}  // namespace

std::string describe_byte(char byte) {
  const auto value = static_cast<unsigned char>(byte);
  if (value > 0x20 && value < 0x7F) return std::string("'") + byte + "'";
  if (byte == ' ') return "a blank";
  if (byte == '\t') return "a tab";
  constexpr std::string_view kDigits = "0123456789abcdef";
  return std::string("byte 0x") + kDigits[value >> 4] + kDigits[value & 15];
}

Error spec_error(const SpecLine& line, std::size_t offset, std::string_view message) {
  offset = std::min(offset, line.text.size());
  std::string out(line.origin);
  // Columns count characters, not bytes.
  const std::size_t column = count_characters(line.text.substr(0, offset)) + 1;
  if (line.number != 0) {
    out += ":" + std::to_string(line.number) + ":" + std::to_string(column) + ": ";
  } else {
    out += ": column " + std::to_string(column) + ": ";
  }
  out += message;

  // Shows a part of a long line, around the place, without cutting a character in half.
  std::size_t first = offset > kWindow / 2 ? offset - kWindow / 2 : 0;
  if (line.text.size() <= kWindow) first = 0;
  while (first > 0 && is_utf8_continuation(line.text[first])) --first;
  std::size_t last = std::min(line.text.size(), first + kWindow);
  while (last < line.text.size() && is_utf8_continuation(line.text[last])) ++last;

  const std::string before = first > 0 ? "  ..." : "  ";
  const std::string after = last < line.text.size() ? "..." : "";
  out += "\n" + before + visible_line(line.text.substr(first, last - first)) + after + "\n";
  // Under what is shown: a byte that is no character has a column there, too.
  const std::string shown = visible_line(line.text.substr(first, offset - first));
  out.append(before.size() + count_characters(shown), ' ');
  out += '^';
  return make_error(ErrorCode::kUsage, std::move(out));
}

}  // namespace hora::launcher
