// SPDX-License-Identifier: Apache-2.0
// What users type: its words and lines, and errors that point at the place.  [pure]
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rendezvous/base/result.h"

namespace hora::launcher {

// The user's error.

// For what is wrong with the command line, or with a file that it names: exit code 2.
inline Error usage(std::string message) {
  return make_error(ErrorCode::kUsage, std::move(message));
}

// Points at the place of a text that the user wrote and that was not understood.

// One line of a text from the user and where it stands.
struct SpecLine {
  std::string_view origin;  // "-H", or the path of a hostfile
  std::string_view text;    // the line, without its line end
  std::size_t number = 0;   // from 1; 0: the text is not a file, errors name the column only
};

// A kUsage error: `origin: column 3: message` or `origin:7:3: message`, then the line and a caret
// under byte `offset` of it. Columns count characters, from 1. Control bytes are shown as '?', a
// long line is cut to a window around the caret.
Error spec_error(const SpecLine& line, std::size_t offset, std::string_view message);

// A byte of the user's text for a message: 'x', or "byte 0x07" when it does not print.
std::string describe_byte(char byte);

// Splits a command line into words as a POSIX shell would, without expanding anything.

// Blanks separate; '...', "..." and \x quote. Characters that a shell would expand or run ($, `, |,
// ;, &, <, >, *, ~ at the start of a word) are taken literally. Errors (kUsage): an open quote.
Result<std::vector<std::string>> split_shell_words(std::string_view text);

// The words as one line that a shell reads back as the same words; for showing a command.
std::string quote_shell_words(const std::vector<std::string>& words);

// The text of a file without the byte order mark that editors on Windows begin it with.
inline std::string_view without_mark(std::string_view text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  return text;
}

// Lines of a file that may go on in the next one.

struct LogicalLine {
  std::size_t number = 0;  // of its first line in the file, from 1
  std::string text;
};

// '#' begins a line that is a comment, and '\' at its end goes on in the next one. Empty lines and
// comments are left out.
std::vector<LogicalLine> logical_lines(std::string_view text);

}  // namespace hora::launcher
