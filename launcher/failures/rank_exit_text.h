// SPDX-License-Identifier: Apache-2.0
// How a rank ended, in words: the exit itself, the last lines of its error, and what these usually
// mean.  [pure]
#pragma once

#include <string>
#include "launcher/protocol/messages.h"
#include <string_view>
#include <vector>
#include <span>

namespace hora::launcher {

// How a rank ended, in words. The agent reports facts; this is the one place that turns them into
// sentences.

// "executing /x/y: Permission denied"; empty when the rank was started.
std::string start_failure_text(const RankExit& exit);

// "exited with code 3", "was killed by SIGSEGV (core dumped)", "could not be started: ..."
std::string how_it_ended(const RankExit& exit);

// Which of the last lines of a program belong to the error that ended it.

// The texts that may say why the program ended, the likeliest first: the message of the last
// Python exception and of those that it names as its cause, or a later line that announces an
// error, or else single lines from the end on. Warnings, and errors that the program survived, are
// not among them.
std::vector<std::string> last_errors(std::string_view text);

// What the last words of a rank usually mean, for errors that users meet and cannot read.

struct StderrHint {
  std::string_view id;       // "python-module"
  std::string_view pattern;  // stands in the text as it is
  std::string_view meaning;
  std::string_view fix;
};

std::span<const StderrHint> stderr_hints();
// The first row whose pattern stands in the error that ended the program, which printed `text`
// last; nullptr when none does.
const StderrHint* find_stderr_hint(std::string_view text);

}  // namespace hora::launcher
