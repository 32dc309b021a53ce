// SPDX-License-Identifier: Apache-2.0
// The classes of horarun's failures with their exit codes, as one table.  [pure]
// Which rank failed first, and with which code, is for launcher/job/job_state.h to say.
// docs/reference/exit-codes.md is made from it.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "launcher/protocol/exit_code.h"

namespace hora::launcher {

// One class of failure; code is one of launcher/failures/failure_code.h.
struct FailureClass {
  std::string_view code;  // "E_SSH_AUTH"
  int exit_code;
  std::string_view title;       // one line
  std::string_view cause;       // what it usually means
  std::string_view fix;         // what to do, imperative; also the advice under a message
  std::string_view proof = {};  // a command that shows it: see fill_command()
};

// What an exit code of horarun means. The codes that ranks end with are not among them.
struct CodeMeaning {
  int code;
  std::string_view meaning;
};

std::span<const CodeMeaning> code_meanings();
std::span<const FailureClass> failure_classes();
const FailureClass* find_failure_class(std::string_view code);

// kExitLauncher for a code that is not in the table.
int exit_code_of_failure(std::string_view code);

// The table of docs/reference/exit-codes.md, in Markdown.
std::string exit_code_reference();

}  // namespace hora::launcher
