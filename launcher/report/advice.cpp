// SPDX-License-Identifier: Apache-2.0
// Habits of other launchers, which start a script by its name or take a command as one word, need
// another advice than a program that a host lacks.
#include "launcher/report/advice.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <iterator>
#include <string_view>

#include "launcher/failures/explain.h"
#include "launcher/failures/failure_code.h"
#include "launcher/text/text.h"
#include "launcher/text/user_input.h"
#include "rendezvous/base/text.h"

namespace hora::launcher {

namespace {

// NAME=VALUE, which only a shell takes for a variable.
bool is_assignment(const std::string& program) {
  const std::size_t equals = program.find('=');
  const auto starts_name = [](char c) {
    return std::isalpha(static_cast<unsigned char>(c)) || c == '_';
  };
  return equals != std::string::npos && equals > 0 && starts_name(program.front()) &&
         std::all_of(
             program.begin(), program.begin() + static_cast<std::ptrdiff_t>(equals),
             [&](char c) { return starts_name(c) || std::isdigit(static_cast<unsigned char>(c)); });
}

bool is_of_the_shell(const std::string& program) {
  constexpr std::string_view kOfTheShell[] = {"cd",   "export", "source", "ulimit",
                                              "exec", "set",    "eval"};
  return std::find(std::begin(kOfTheShell), std::end(kOfTheShell), program) !=
         std::end(kOfTheShell);
}

std::string advice_for_missing(const std::string& program, bool has_it) {
  if (is_verb(program)) {
    return quote(program) + " is a verb of horarun only as the first word: horarun " + program +
           " ...";
  }
  if (is_assignment(program)) {
    return "Set variables of the ranks with -x: horarun ... -x " + quote_shell_words({program}) +
           " PROGRAM";
  }
  if (is_of_the_shell(program)) {
    return quote(program) +
           " is a command of the shell, not a program: horarun ... sh -c 'LINE'; --wdir DIR "
           "chooses the directory";
  }
  // A program's name may have a blank; in a path, it is unknown where the words would end.
  const std::size_t blank = program.find(' ');
  if (blank != std::string::npos && program.find('/') > blank) {
    if (program.find_first_of("&|;<>$`()") != std::string::npos) {
      return "A line for the shell needs one: horarun ... sh -c " + quote_shell_words({program});
    }
    return "Remove the quotes around the program: horarun ... " + program;
  }
  // A path that does not exist would not exist for Python, either.
  if (program.ends_with(".py") && program.find('/') == std::string::npos) {
    return quote(program) + " is a Python script; start it with: horarun ... python3 " + program;
  }
  if (has_it && program.find('/') == std::string::npos) {
    return quote(program) + " is in the working directory, not in PATH: horarun ... ./" + program;
  }
  return {};
}

constexpr std::size_t kShown = 4;

std::string owner(const GpuFault& fault) {
  const std::string process = fault.pid > 0 ? "pid " + std::to_string(fault.pid) : std::string();
  if (fault.rank >= 0) {
    return " (rank " + std::to_string(fault.rank) + (process.empty() ? "" : ", " + process) + ")";
  }
  if (process.empty()) return {};
  return " (" + process + (fault.program.empty() ? "" : ", " + fault.program) + ")";
}

}  // namespace

std::string start_advice(const RankExit& exit, bool has_it) {
  const FailureClass* row = find_failure_class(exit.code);
  if (row == nullptr) return {};
  const std::string program = visible_line(exit.program);
  std::string advice;
  if (exit.code == failure::kProgramNotFound) advice = advice_for_missing(program, has_it);
  if (exit.code == failure::kNotExecutable && program.ends_with(".py")) {
    advice = "Start it with: horarun ... python3 " + program +
             ". Or begin it with #!/usr/bin/env python3 and run chmod +x on it.";
  }
  if (exit.errnum == EISDIR) advice = quote(program) + " is a folder: name a program in it.";
  if (exit.stage == SpawnStage::kExecute && exit.errnum == E2BIG) {
    advice =
        "Give the program a file instead of long arguments or variables; a single one may have "
        "128 KiB, all of them a quarter of ulimit -s.";
  }
  if (advice.empty()) advice = row->fix;
  std::string text = "  [" + exit.code + "] " + advice + "\n";
  if (exit.code == failure::kProgramNotFound && program == "python") {
    text += "  On Debian and Ubuntu it is called python3.\n";
  }
  return text;
}

std::string gpu_fault_text(const HostGpuFault& seen) {
  const GpuFault& fault = seen.fault;
  const XidClass* known = find_xid(fault.xid);
  return "GPU " + visible_line(fault.device) + " of " + seen.host + visible_line(owner(fault)) +
         ": Xid " + std::to_string(fault.xid) +
         (known != nullptr ? ", " + std::string(known->meaning) : std::string()) +
         (fault.text.empty() ? "" : ": " + visible_line(fault.text));
}

std::string gpu_fault_report(const std::vector<HostGpuFault>& faults) {
  std::string text;
  for (std::size_t i = 0; i < std::min(faults.size(), kShown); ++i) {
    const XidClass* known = find_xid(faults[i].fault.xid);
    text += "  " + gpu_fault_text(faults[i]) + "\n    what to do: " +
            (known != nullptr ? std::string(known->fix)
                              : "see NVIDIA's catalogue: " + std::string(kXidCatalogue)) +
            "\n";
  }
  if (faults.size() > kShown) {
    text += "  and " + std::to_string(faults.size() - kShown) + " more faults of GPUs\n";
  }
  return text;
}

}  // namespace hora::launcher
