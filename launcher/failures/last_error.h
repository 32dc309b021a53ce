// SPDX-License-Identifier: Apache-2.0
// Which of the last lines of a program belong to the error that ended it.  [pure]
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hora::launcher {

// The texts that may say why the program ended, the likeliest first: the message of the last
// Python exception and of those that it names as its cause, or a later line that announces an
// error, or else single lines from the end on. Warnings, and errors that the program survived, are
// not among them.
std::vector<std::string> last_errors(std::string_view text);

}  // namespace hora::launcher
