// SPDX-License-Identifier: Apache-2.0
// How a rank ended, in words: the exit itself, the last lines of its error, and what these usually
// mean.  [pure]
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/protocol/messages.h"

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

// The rank of which a rank's last lines say, in the words of the runtime, that it left, is gone or
// could not go on: "rank 1 (host) has shut down". This rank failed because of that one.
std::optional<int> rank_that_left(std::string_view last_stderr);

// "[rank0]: " of PyTorch, and "  | " of exception groups, stand before a line of a traceback.
std::string_view without_margin(std::string_view line);

// Whether a line of a Python traceback belongs to a frame inside of Hora's packages, given whether
// the line before does.
bool continues_own_frame(std::string_view line, bool is_own);

}  // namespace hora::launcher
