// SPDX-License-Identifier: Apache-2.0
// The classes of horarun's failures with their exit codes, as one table.  [pure]
#pragma once

#include <cerrno>
#include <span>
#include <string>
#include <string_view>

#include "launcher/protocol/exit_code.h"

namespace hora::launcher::failure {

// The classes of the launcher's own failures. A failure ends the job with exit code 125 (or the
// one given here); its class is printed with the message and stands in --json. One table, so that
// docs/reference/exit-codes.md and the code cannot disagree.

inline constexpr std::string_view kUsage = "E_USAGE";              // exit 2
inline constexpr std::string_view kResolve = "E_RESOLVE";          // host name unknown
inline constexpr std::string_view kConnect = "E_CONNECT";          // refused, unreachable
inline constexpr std::string_view kRefused = "E_CONNECT_REFUSED";  // nothing listens there
inline constexpr std::string_view kConnectTimeout = "E_CONNECT_TIMEOUT";
inline constexpr std::string_view kHostKeyUnknown = "E_HOST_KEY_UNKNOWN";
inline constexpr std::string_view kHostKeyChanged = "E_HOST_KEY_CHANGED";
inline constexpr std::string_view kSshAuth = "E_SSH_AUTH";
inline constexpr std::string_view kSshBusy = "E_SSH_BUSY";  // MaxStartups, after retries
inline constexpr std::string_view kSshProtocol = "E_SSH_PROTOCOL";
inline constexpr std::string_view kRemoteShell =
    "E_REMOTE_SHELL";                                       // the shell did not start our line
inline constexpr std::string_view kNoShell = "E_NO_SHELL";  // nologin, false
inline constexpr std::string_view kShellTimeout = "E_SHELL_TIMEOUT";  // a login script waits
inline constexpr std::string_view kDiskFull = "E_DISK_FULL";
inline constexpr std::string_view kCache = "E_CACHE";          // no writable directory, disk full
inline constexpr std::string_view kAgent = "E_AGENT";          // the agent did not start or died
inline constexpr std::string_view kCLibrary = "E_C_LIBRARY";   // too old, or no glibc
inline constexpr std::string_view kProcessor = "E_PROCESSOR";  // no build for it
inline constexpr std::string_view kProtocol = "E_PROTOCOL";
inline constexpr std::string_view kCwd = "E_CWD";    // working directory missing there
inline constexpr std::string_view kBind = "E_BIND";  // CPUs that are not to be had there
inline constexpr std::string_view kShip = "E_SHIP";
inline constexpr std::string_view kNetwork = "E_NETWORK";             // no common network
inline constexpr std::string_view kStartTimeout = "E_START_TIMEOUT";  // exit 124
inline constexpr std::string_view kTimeout = "E_TIMEOUT";             // exit 124
inline constexpr std::string_view kHostLost = "E_HOST_LOST";
inline constexpr std::string_view kElsewhere = "E_ELSEWHERE";  // node 0 has ended the job
inline constexpr std::string_view kEngine = "E_ENGINE";        // the batch system has ended the job
inline constexpr std::string_view kRsh = "E_RSH";              // --rsh command failed
inline constexpr std::string_view kContainer = "E_CONTAINER";  // the image does not run there
inline constexpr std::string_view kRendezvous = "E_RENDEZVOUS";
inline constexpr std::string_view kOutput = "E_OUTPUT";      // standard output takes no more
inline constexpr std::string_view kUnfit = "E_HOSTS_UNFIT";  // --check-hosts found errors
inline constexpr std::string_view kStalled = "E_STALLED";    // exit 124; --on-stall kill
inline constexpr std::string_view kReport = "E_REPORT";      // --report cannot be written
// Failures of elastic jobs.
inline constexpr std::string_view kDiscovery = "E_DISCOVERY";  // the script failed at the start
inline constexpr std::string_view kElasticTimeout = "E_ELASTIC_TIMEOUT";  // exit 124
inline constexpr std::string_view kElasticHosts = "E_ELASTIC_HOSTS";      // too few are left
inline constexpr std::string_view kElasticState = "E_ELASTIC_STATE";      // no rank has the state
inline constexpr std::string_view kResetLimit = "E_RESET_LIMIT";
inline constexpr std::string_view kPmi = "E_PMI";                // no PMI server next to the ranks
inline constexpr std::string_view kLibrary = "E_LIBRARY";        // of a vendor: a host lacks it
inline constexpr std::string_view kKubernetes = "E_KUBERNETES";  // no pods, or no way to them
// Ranks that could not be started; the job ends with their exit code.
inline constexpr std::string_view kProgramNotFound = "E_PROGRAM_NOT_FOUND";  // exit 127
inline constexpr std::string_view kInterpreter = "E_INTERPRETER";            // exit 127
inline constexpr std::string_view kLoader = "E_LOADER";                      // exit 127
inline constexpr std::string_view kNotExecutable = "E_NOT_EXECUTABLE";       // exit 126
inline constexpr std::string_view kNoProcess = "E_NO_PROCESS";               // exit 126
inline constexpr std::string_view kOutOfMemory = "E_OUT_OF_MEMORY";          // exit 137
inline constexpr std::string_view kInternal = "E_INTERNAL";
inline constexpr std::string_view kMissingFeature = "E_NOT_BUILT";  // exit 2

// What to do when it was horarun or its agent that came to a limit of open files, its own (EMFILE)
// or the whole system's (ENFILE); empty for any other errno. `where` is "here" or "there".
inline std::string open_files_advice(int errnum, std::string_view where) {
  if (errnum != EMFILE && errnum != ENFILE) return {};
  return "raise the limit of open files " + std::string(where) +
         (errnum == EMFILE ? " (ulimit -n)" : " (sysctl fs.file-max)");
}

}  // namespace hora::launcher::failure

namespace hora::launcher {

// The classes of horarun's failures with their exit codes, as one table.
// Which rank failed first, and with which code, is for launcher/job/job_state.h to say.
// docs/reference/exit-codes.md is made from it.

// One class of failure; code is one of launcher/failures/failure_code.h.
struct FailureClass {
  std::string_view code;  // "E_SSH_AUTH"
  int exit_code;
  std::string_view title;       // one line
  std::string_view cause;       // what it usually means
  std::string_view fix;         // what to do, imperative; also the advice under a message
  std::string_view proof = {};  // a command that shows it: see fill_command()
};

// The meaning of horarun's own exit codes. The codes of ranks are not among them.
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
