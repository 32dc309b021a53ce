// SPDX-License-Identifier: Apache-2.0
// What is said between the launcher and the tasks of an engine's step, before they dial: a script
// that each task runs, lines on its stdout, lines on the stdin that they share.  [pure]
//
// (An engine whose tasks have no stdin in common has a folder that all hosts see: there are the
// copies, and a file with the launcher's lines.)
//
//   launcher: URL                      what hora-dial needs to know, as of --listen: a secret
//   task:     HORA-<nonce> need <step>          the cache of its host lacks the helper
//   launcher: sent, URL                         the engine has copied it
//   task:     HORA-<nonce> failed <host> <why>  nobody will dial from there
//
// Then the helper runs in the task, and dials.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "launcher/plan/host_list.h"
#include "launcher/plan/job_spec.h"

namespace hora::launcher {

// How long a task tries to reach the launcher. An engine's own command is reached in an instant.
inline constexpr std::chrono::milliseconds kStepDialPatience{8'000};
inline constexpr int kStepFiles = 2;  // that are copied at the most

// A program that hosts keep: the helper, which comes first, and the agent that it will start.
struct StepFile {
  std::string path;  // on this machine
  std::string sha256;
  std::uint64_t size_bytes = 0;
};

struct StepRequest {
  std::string nonce;    // letters and digits
  std::string machine;  // as `uname -m` says: the files are for it
  std::vector<StepFile> files;
  std::vector<Host> hosts;
  std::chrono::milliseconds grace{5'000};  // for ranks, between TERM and KILL
};

// The whole command that starts the step. Errors (kUsage): a host that could be taken for something
// else.
Result<std::vector<std::string>> step_command(const EngineStep& engine, const StepRequest& request);
// How long the step's command may go on without the launcher before it is ended.
std::chrono::milliseconds guard_patience(const StepRequest& request);
// Where the engine is to put a copy of the file, and the command for that.
std::string step_copies(const EngineStep& engine, const std::string& nonce);
// The launcher's lines, in the engine's folder.
std::string step_words_file(const std::string& copies);
std::string step_words_text(const std::string& url);
std::string step_copy(const std::string& copies, int file);
std::vector<std::string> copy_command(const EngineStep& engine, const StepRequest& request,
                                      int file, const std::string& step);
inline constexpr std::string_view kStepSent = "sent\n";

struct StepNeed {
  std::string step;
};
struct StepFailure {
  std::string host;
  std::string why;
};
// What a line on the step's stdout means; nothing: it is somebody else's.
std::optional<std::variant<StepNeed, StepFailure>> parse_step_line(std::string_view nonce,
                                                                   std::string_view line);
std::string step_failure(std::string_view nonce, std::string_view host, std::string_view why);

}  // namespace hora::launcher
