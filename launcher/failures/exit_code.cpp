// SPDX-License-Identifier: Apache-2.0
// One table of failure classes serves errors, `explain` and the reference, so the three cannot
// differ.
#include "launcher/failures/exit_code.h"

#include <signal.h>

#include <algorithm>

#include "launcher/failures/proof.h"
#include "launcher/failures/xid_table.h"
#include "launcher/text/constant_name.h"
#include "launcher/text/did_you_mean.h"
#include "launcher/text/signal_name.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

struct CodeMeaning {
  int code;
  std::string_view meaning;
};
constexpr CodeMeaning kCodes[] = {
    {kExitOk, "every rank succeeded"},
    {kExitUsage, "the command line, or a file that it names, is wrong; nothing was started"},
    {kExitTimeout, "a time limit passed: --start-timeout or --timeout"},
    {kExitLauncher,
     "horarun itself failed; the class stands in square brackets in the message: [E_CONNECT]"},
    {kExitCannotExecute, "the program exists on the host but cannot be executed"},
    {kExitNotFound, "the program does not exist on the host"},
};

std::string explain_class(const FailureClass& row) {
  std::string out(row.code);
  out += ": " + std::string(row.title) + " (exit code " + std::to_string(row.exit_code) + ")\n\n";
  out += "Cause: " + std::string(row.cause) + "\n\nFix:   " + std::string(row.fix) + "\n";
  if (!row.proof.empty()) {
    out += "\nReproduce it: " + fill_command(row.proof, "ssh", Host{"HOST", "", {}}) + "\n";
  }
  return out;
}

// Who mostly sends a signal, where the number alone says too little.
std::string_view usual_sender(int signal) {
  switch (signal) {
    case SIGKILL:
      return ", often by the kernel's out-of-memory killer (dmesg on that host)";
    case SIGBUS:
      return ", often because /dev/shm is full";
    case SIGSEGV:
      return ": it used memory that is not its own";
    case SIGABRT:
      return ": it gave up by itself, mostly with a message on stderr";
    default:
      return "";
  }
}

std::string explain_exit_code(int code) {
  const std::string head = "exit code " + std::to_string(code) + ": ";
  for (const CodeMeaning& row : kCodes) {
    if (row.code == code) return head + std::string(row.meaning) + "\n";
  }
  // Shells report 128 + N for a process that signal N ended.
  if (code > kExitSignalBase && code <= kExitSignalBase + 64) {
    const int signal = code - kExitSignalBase;
    std::string text =
        head + "the rank that failed first was ended by signal " + std::to_string(signal);
    // Those that have a name of their own, not "signal 42".
    if (signal_number(signal_name(signal))) text += " (" + signal_name(signal) + ")";
    return text.append(usual_sender(signal)) + "\n";
  }
  return head + "the rank that failed first ended with this code; it is the program's own\n";
}

std::string list_all() {
  std::string out = "Exit codes:\n";
  for (const CodeMeaning& row : kCodes) {
    std::string code = std::to_string(row.code);
    code.resize(9, ' ');
    out += "  " + code + std::string(row.meaning) + "\n";
  }
  out += "  128+N    the rank that failed first was ended by signal N\n";
  out += "  other    the rank that failed first ended with this code\n\nClasses of failures:\n";
  for (const FailureClass& row : failure_classes()) {
    std::string code(row.code);
    code.resize(20, ' ');
    out += "  " + code + std::string(row.title) + "\n";
  }
  return out + "\n'horarun explain CODE' says more about one of them.\n";
}

// Accepts "79", " 79" and "=79", as people write it.
Result<std::string> explain_xid(std::string_view text) {
  const std::size_t digits = std::min(text.find_first_of("0123456789"), text.size());
  const auto code = parse_int<int>(text.substr(digits));
  const XidClass* row = code ? find_xid(*code) : nullptr;
  const std::string catalogue = "NVIDIA's catalogue: " + std::string(kXidCatalogue);
  if (row == nullptr) {
    return make_error(ErrorCode::kUsage, "explain: no Xid " + quote(text.substr(digits)) +
                                             " is known here; " + catalogue);
  }
  return "Xid " + std::to_string(row->code) + ": " + std::string(row->meaning) +
         "\n\nFix:   " + std::string(row->fix) + "\n\n" + catalogue + "\n";
}

}  // namespace

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

Result<std::string> explain(std::string_view code) {
  if (code.empty()) return list_all();
  // Numbers are exit codes; everything else is a class, with or without its "E_".
  if (const auto number = parse_int<int>(code); number && *number >= 0 && *number <= 255) {
    return explain_exit_code(*number);
  }
  // People write "ssh-auth" as well as E_SSH_AUTH.
  std::string name = constant_name(code);
  if (const auto signal = signal_number(name)) return explain_exit_code(kExitSignalBase + *signal);
  if (name.substr(0, 3) == "XID") return explain_xid(std::string_view(name).substr(3));
  if (name.substr(0, 2) != "E_") name.insert(0, "E_");
  if (const FailureClass* row = find_failure_class(name)) return explain_class(*row);

  std::vector<std::string> known;
  for (const FailureClass& row : failure_classes()) known.emplace_back(row.code);
  std::string message = "explain: unknown failure code " + quote(code);
  const auto close = did_you_mean(name, known);
  message +=
      close.empty() ? "; 'horarun explain' lists all" : "; did you mean " + close.front() + "?";
  return make_error(ErrorCode::kUsage, std::move(message));
}

}  // namespace hora::launcher
