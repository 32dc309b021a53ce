// SPDX-License-Identifier: Apache-2.0
// argv and the environment become one Command, or one message for the user.  [pure]
// docs/reference/cli.md describes every option.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "launcher/options/settings.h"
#include "launcher/plan/job_spec.h"
#include "launcher/plan/platform_node.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

// The release of Horovod whose interface the packages follow. Under the name horovodrun the program
// says this.
inline constexpr std::string_view kHorovodVersion = "0.28.1";

struct ShowText {  // --help, --help=all, --version: to stdout, exit 0
  std::string text;
};
struct CheckBuild {
  bool verbose = false;
  bool json = false;
  bool as_horovodrun = false;
};
// In the JobSpec of Launch and Smoke an empty working_directory means the launcher's own.
// `platform`: the others of its nodes join this job.
struct Launch {
  JobSpec job;
  std::optional<PlatformNode> platform;
  bool dry_run = false;
  std::vector<std::string> warnings;  // one line each, without the program's name; to stderr
  bool detach = false;
};
// --smoke: `job.command` is empty, the caller puts the worker there. job.json: the report as JSON.
struct Smoke {
  JobSpec job;
  std::optional<PlatformNode> platform;
  bool dry_run = false;
  std::vector<std::string> warnings;
  bool detach = false;
};
struct RunRendezvous {
  std::string address = "127.0.0.1";  // numeric; where to listen
  std::uint16_t port = 0;             // 0: any free one; it is printed
  std::string token_file;             // empty: no token is asked for
  std::vector<std::string> allow;     // networks, each valid for parse_cidr(); empty: everyone
  std::optional<int> end_with;        // a process whose end is its own
  bool verbose = false;
};
struct ManageCache {
  enum class Action { kList, kClean };
  Action action = Action::kList;
  CacheLimits limits;    // of kClean; none: all that no job uses goes
  bool dry_run = false;  // of kClean
  JobSpec job;  // hosts (empty: this machine), transport, ssh, start_timeout, json, verbose
};
struct RunDoctor {
  JobSpec job;  // hosts (empty: this machine), transport, ssh, start_timeout, json, verbose
  bool deep = false;
};
struct BundleReport {
  std::string record;  // what --report FILE.json has written
  std::string output;
  RunDoctor doctor;  // hosts (empty: those of the record)
};
struct MergeTimelines {
  std::vector<std::string> files;
  std::string output;
};
// horarun --join. Where the URL is: "-" (standard input), a file, or the URL itself.
struct Join {
  std::string source;
  std::optional<int> slots;                          // none: one for each GPU, or one
  std::optional<std::chrono::milliseconds> timeout;  // until the launcher has answered
  std::optional<PlatformNode> platform;              // in place of `source`
  bool verbose = false;
};
// horarun jobs, top, attach, cancel.
struct AskJobs {
  enum class Action { kList, kTop, kAttach, kCancel };
  Action action = Action::kList;
  int job = 0;  // the launcher's process; 0: of kList; of kTop: the only one
  bool json = false;
  bool once = false;  // of kTop, likewise below
  bool prometheus = false;
};
struct Explain {
  std::string code;  // empty: list all codes
};

using Command = std::variant<ShowText, CheckBuild, Launch, Smoke, RunRendezvous, ManageCache,
                             RunDoctor, BundleReport, MergeTimelines, Join, AskJobs, Explain>;

// Errors are kUsage (exit 2): the message names the option, what was found and what was expected;
// the caller prints it as "horarun: error: <message>".
Result<Command> parse_command_line(int argc, const char* const* argv, const ProcessInputs& inputs);

// Whether a command line, which may be wrong, asks for its errors as events (--json).
bool asks_for_events(int argc, const char* const* argv, const ProcessInputs& inputs);

}  // namespace hora::launcher
