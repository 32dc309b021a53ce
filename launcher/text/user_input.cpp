// SPDX-License-Identifier: Apache-2.0
#include "launcher/text/user_input.h"

#include <algorithm>

#include "rendezvous/base/text.h"

namespace hora::launcher {

// Errors in a specification show the line and a caret under the place, as compilers do.

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
  // Under the shown text: a byte that is not a character has a column there, too.
  const std::string shown = visible_line(line.text.substr(first, offset - first));
  out.append(before.size() + count_characters(shown), ' ');
  out += '^';
  return make_error(ErrorCode::kUsage, std::move(out));
}

// Splits a text as a POSIX shell would, but without expansions.

namespace {

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

// A list of what is safe, not of what is special: shells differ in the latter. Bytes beyond ASCII
// are quoted, since what they mean depends on the locale.
bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("@%+=:,./-_").find(c) != std::string_view::npos;
}

std::string quote_word(const std::string& word) {
  bool plain = !word.empty();
  for (const char c : word) plain = plain && is_plain(c);
  if (plain) return word;
  std::string out = "'";
  for (const char c : word) {
    if (c == '\'') {
      // Nothing can be quoted within single quotes: they end, a quote is added, and they begin
      // again.
      out += "'\\''";
    } else {
      out += c;
    }
  }
  return out + "'";
}

}  // namespace

Result<std::vector<std::string>> split_shell_words(std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  bool in_word = false;
  char quote = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    // Nothing is special inside single quotes.
    // NOLINTNEXTLINE(bugprone-branch-clone): a backslash is, inside double quotes.
    if (quote == '\'') {
      if (c == quote) {
        quote = 0;
      } else {
        word += c;
      }
    } else if (c == '\\' && i + 1 < text.size()) {
      const char next = text[++i];
      // Inside double quotes, a backslash quotes only these.
      if (quote == '"' && std::string_view("\"\\$`").find(next) == std::string_view::npos)
        word += c;
      word += next;
      in_word = true;
    } else if (quote != 0) {
      if (c == quote) {
        quote = 0;
      } else {
        word += c;
      }
    } else if (c == '\'' || c == '"') {
      quote = c;
      // An empty quoted word ('') is a word.
      in_word = true;
    } else if (is_blank(c)) {
      if (in_word) words.push_back(std::move(word));
      word.clear();
      in_word = false;
    } else {
      word += c;
      in_word = true;
    }
  }
  if (quote != 0) {
    return make_error(ErrorCode::kUsage, std::string("the quote ") + quote + " is not closed");
  }
  if (in_word) words.push_back(std::move(word));
  return words;
}

std::string quote_shell_words(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) {
    if (!out.empty()) out += ' ';
    out += quote_word(word);
  }
  return out;
}

// As the standard of MPI has it for mpiexec's -configfile, and srun for --multi-prog.

std::vector<LogicalLine> logical_lines(std::string_view text) {
  std::vector<LogicalLine> lines;
  std::size_t number = 0;
  bool goes_on = false;
  for (std::string_view line : split(without_mark(text), '\n')) {
    ++number;
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (!goes_on) {
      if (trim(line).empty() || trim(line).front() == '#') continue;
      lines.push_back({number, ""});
    }
    goes_on = !line.empty() && line.back() == '\\';
    if (goes_on) line.remove_suffix(1);
    lines.back().text += line;
  }
  return lines;
}

}  // namespace hora::launcher
