// SPDX-License-Identifier: Apache-2.0
// Words for a shell that we did not choose.  [pure]
//
// sshd hands our one command line to the user's login shell, which may be sh, bash, dash, ksh,
// zsh, csh, tcsh, fish or busybox. They agree on little: letters and a few signs bare, single
// quotes around most of the rest, and a backslash outside of quotes.
#pragma once

#include <string>
#include <string_view>

#include "rendezvous/base/result.h"

namespace hora::launcher {

// `word` for any of the shells above. They have no common way to write a line feed or a carriage
// return inside a word, nor NUL: an error.
Result<std::string> quote_for_any_shell(std::string_view word);

}  // namespace hora::launcher
