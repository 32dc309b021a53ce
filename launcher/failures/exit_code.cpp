// SPDX-License-Identifier: Apache-2.0
// One table of failure classes serves errors, `explain` and the reference, so the three cannot
// differ.
#include "launcher/failures/exit_code.h"

#include <algorithm>

namespace hora::launcher {

namespace {

constexpr CodeMeaning kCodes[] = {
    {kExitOk, "every rank succeeded"},
    {kExitUsage, "the command line, or a file that it names, is wrong; nothing was started"},
    {kExitTimeout, "a time limit passed: --start-timeout or --timeout"},
    {kExitLauncher,
     "horarun itself failed; the class stands in square brackets in the message: [E_CONNECT]"},
    {kExitCannotExecute, "the program exists on the host but cannot be executed"},
    {kExitNotFound, "the program does not exist on the host"},
};

}  // namespace

std::span<const CodeMeaning> code_meanings() { return kCodes; }

const FailureClass* find_failure_class(std::string_view code) {
  const auto classes = failure_classes();
  const auto found = std::find_if(classes.begin(), classes.end(),
                                  [code](const FailureClass& row) { return row.code == code; });
  return found == classes.end() ? nullptr : &*found;
}

// An unknown class can only come from a newer agent; the launcher failed then.
int exit_code_of_failure(std::string_view code) {
  const FailureClass* row = find_failure_class(code);
  return row == nullptr ? kExitLauncher : row->exit_code;
}

std::string exit_code_reference() {
  std::string out = "| code | means |\n|---|---|\n";
  for (const CodeMeaning& row : kCodes) {
    out += "| " + std::to_string(row.code) + " | " + std::string(row.meaning) + " |\n";
  }
  out +=
      "| 128 + N | the rank that failed first was ended by signal N |\n"
      "| any other | the rank that failed first ended with this code |\n\n"
      "## Classes of failures\n\n"
      "The class stands in square brackets in the message, and in the events of `--json`. `horarun "
      "explain CLASS` prints\nthe same text.\n\n"
      "| class | exit code | cause | what to do |\n|---|---|---|---|\n";
  for (const FailureClass& row : failure_classes()) {
    out += "| `" + std::string(row.code) + "` | " + std::to_string(row.exit_code) + " | " +
           std::string(row.cause) + " | " + std::string(row.fix) + " |\n";
  }
  return out;
}

}  // namespace hora::launcher
