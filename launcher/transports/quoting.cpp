// SPDX-License-Identifier: Apache-2.0
// The remote login shell may be any shell: sh, bash, zsh, fish, csh. The quoting here means the
// same in all of them; what cannot be written that way is an error.
#include "launcher/transports/quoting.h"

#include <cstring>

namespace hora::launcher {

namespace {

// Every shell takes these literally, anywhere in a word. '=' is missing (zsh expands a leading one,
// fish and csh assign), and so are '~', '^', '%' and '{'.
bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         (c != '\0' && std::strchr("_-./,:+@", c) != nullptr);
}

bool all_plain(std::string_view word) {
  for (char c : word) {
    if (!is_plain(c)) return false;
  }
  return !word.empty();
}

Error not_an_argument(std::string_view what) {
  return make_error(ErrorCode::kUsage,
                    "an argument with " + std::string(what) + " cannot be passed to a shell");
}

// Puts `word` in single quotes. A character that some shell interprets even there gets a backslash
// between two quoted pieces: csh expands '!' (history), fish reads '\'.
std::string single_quoted(std::string_view word) {
  const auto outside = [](char c) { return c == '\'' || c == '\\' || c == '!'; };
  std::string out;
  out.reserve(word.size() + 2);
  bool open = false;
  for (char c : word) {
    if (outside(c) == open) {
      out += '\'';
      open = !open;
    }
    if (!open) out += '\\';
    out += c;
  }
  if (open || out.empty()) out += open ? "'" : "''";
  return out;
}

}  // namespace

// No quoting works for line breaks in csh, so they are refused rather than passed on wrongly.
Result<std::string> quote_for_any_shell(std::string_view word) {
  if (word.find('\0') != std::string_view::npos) return not_an_argument("a NUL byte");
  if (word.find_first_of("\n\r") != std::string_view::npos) {
    return not_an_argument("a line feed or carriage return");
  }
  if (all_plain(word)) return std::string(word);
  return single_quoted(word);
}

}  // namespace hora::launcher
