// SPDX-License-Identifier: Apache-2.0
// The kinds of words are told apart by how they look, so none needs an option of its own: numbers
// are exit codes, names of signals stand for 128 + N, and the rest are codes of the two tables.
#include "launcher/failures/explain.h"

#include <signal.h>

#include <algorithm>

#include "launcher/failures/exit_code.h"
#include "launcher/failures/finding_classes.h"
#include "launcher/failures/proof.h"
#include "launcher/failures/xid_table.h"
#include "launcher/text/constant_name.h"
#include "launcher/text/did_you_mean.h"
#include "launcher/text/signal_name.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

std::string explain_class(const FailureClass& row) {
  std::string out(row.code);
  out += ": " + std::string(row.title) + " (exit code " + std::to_string(row.exit_code) + ")\n\n";
  out += "Cause: " + std::string(row.cause) + "\n\nFix:   " + std::string(row.fix) + "\n";
  if (!row.proof.empty()) {
    out += "\nReproduce it: " + fill_command(row.proof, "ssh", Host{"HOST", "", {}}) + "\n";
  }
  return out;
}

std::string explain_finding(const FindingClass& row) {
  return std::string(row.code) + ", found by horarun doctor\n\nCause: " + std::string(row.meaning) +
         "\n\nFix:   " + std::string(row.fix) + "\n";
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
  for (const CodeMeaning& row : code_meanings()) {
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
  for (const CodeMeaning& row : code_meanings()) {
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
  return out +
         "\n'horarun explain CODE' says more about one of them, and about findings of horarun "
         "doctor "
         "(D_SHM),\nsignals (SIGKILL) and faults of NVIDIA GPUs (xid79).\n";
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

// For a name that nothing has: the codes that begin with it, or the one that is most like it.
std::string advice_on(const std::string& name) {
  std::vector<std::string> family;
  for (std::string& code : explained_words()) {
    const bool begins =
        code.starts_with(name) || code.starts_with("E_" + name) || code.starts_with("D_" + name);
    if (begins) family.push_back(std::move(code));
  }
  constexpr std::size_t kFamily = 16;  // more are no help
  if (!family.empty() && family.size() <= kFamily) {
    const std::string_view which =
        family.size() == 1 ? "; did you mean " : "; did you mean one of ";
    return std::string(which) + join(family, ", ") + "?";
  }
  // The beginning that was left out would count as two mistakes.
  auto close = did_you_mean(name, explained_words());
  if (close.empty()) close = did_you_mean("E_" + name, explained_words());
  return close.empty() ? "; 'horarun explain' lists those of failures"
                       : "; did you mean " + close.front() + "?";
}

}  // namespace

std::vector<std::string> explained_words() {
  std::vector<std::string> words;
  for (const FailureClass& row : failure_classes()) words.emplace_back(row.code);
  for (const FindingClass& row : finding_classes()) words.emplace_back(row.code);
  for (const CodeMeaning& row : code_meanings()) words.push_back(std::to_string(row.code));
  // From 32 on they have no names.
  for (int signal = 1; signal < 32; ++signal) words.push_back(signal_name(signal));
  for (const XidClass& row : xid_classes()) words.push_back("xid" + std::to_string(row.code));
  return words;
}

Result<std::string> explain(std::string_view word) {
  if (word.empty()) return list_all();
  if (const auto number = parse_int<int>(word); number && *number >= 0 && *number <= 255) {
    return explain_exit_code(*number);
  }
  // People write "ssh-auth" as well as E_SSH_AUTH.
  const std::string name = constant_name(word);
  for (const std::string& signal : {name, "SIG" + name}) {
    if (const auto number = signal_number(signal)) {
      return explain_exit_code(kExitSignalBase + *number);
    }
  }
  if (name.starts_with("XID")) return explain_xid(std::string_view(name).substr(3));
  for (const std::string& code : {name, "E_" + name}) {
    if (const FailureClass* row = find_failure_class(code)) return explain_class(*row);
  }
  for (const FindingClass& row : finding_classes()) {
    if (row.code == name || row.code == "D_" + name) return explain_finding(row);
  }
  return make_error(ErrorCode::kUsage, "explain: unknown code " + quote(word) + advice_on(name));
}

}  // namespace hora::launcher
