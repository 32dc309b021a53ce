// SPDX-License-Identifier: Apache-2.0
// Splits a command line into words as a POSIX shell would, without expanding anything.  [pure]
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/result.h"

namespace hora::launcher {

// Blanks separate; '...', "..." and \x quote. What a shell would expand or run ($, `, |, ;, &, <,
// >, *, ~ at the start of a word) is taken literally. Errors (kUsage): an open quote.
Result<std::vector<std::string>> split_shell_words(std::string_view text);

// The words as one line that a shell reads back as the same words; for showing a command.
std::string quote_shell_words(const std::vector<std::string>& words);

}  // namespace hora::launcher
