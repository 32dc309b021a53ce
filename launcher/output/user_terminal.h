// SPDX-License-Identifier: Apache-2.0
// The terminal of the user, where rank 0 has one of its own (--pty): it passes on what is typed,
// Ctrl-C included, and shows what rank 0 writes, as it is. One for the process, whose terminal it
// is; what it was before is put back when the process exits, too.
#pragma once

#include <string>

#include "launcher/plan/job_spec.h"

namespace hora::launcher {

// Of the first standard stream that is a terminal; else the default.
TerminalSize size_of_terminal();

// Both do nothing where standard input is not a terminal, or is another process's now: that of the
// shell, which has its own settings.
void make_terminal_raw();
void restore_terminal();

// For `fd`, which may be the terminal: text of others than rank 0, whose lines have to return by
// themselves while it is raw.
std::string with_returns(int fd, std::string text);

}  // namespace hora::launcher
