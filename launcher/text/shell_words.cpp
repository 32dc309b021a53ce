// SPDX-License-Identifier: Apache-2.0
// Splits a text as a POSIX shell would, but without expansions.
#include "launcher/text/shell_words.h"

namespace hora::launcher {

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
      // anew.
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

}  // namespace hora::launcher
