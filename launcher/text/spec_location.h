// SPDX-License-Identifier: Apache-2.0
// Points at the place of a text that the user wrote and that was not understood.  [pure]
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "rendezvous/base/result.h"

namespace hora::launcher {

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

}  // namespace hora::launcher
