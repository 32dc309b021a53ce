// SPDX-License-Identifier: Apache-2.0
// Options from everywhere: the command line, a file that it names, the environment, and the files
// of the project, the user and the machine.  [pure]
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/options/option_check.h"
#include "launcher/options/option_table.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

// What the command line may ask of the world; main passes getenv and file readers.

struct ProcessInputs {
  std::function<std::optional<std::string>(std::string_view name)> variable;
  // A file that the user named.
  std::function<Result<std::string>(const std::string& path)> read_file;
  // A default file: kNotFound when there is none, an error also when it belongs to neither the user
  // nor root. Unset: none is looked for.
  std::function<Result<std::string>(const std::string& path)> read_own_file;
  // Whether $PATH has such a program. Unset: it has none.
  std::function<bool(std::string_view name)> has_program;
  // Whether there is a file of that name. Unset: there is none.
  std::function<bool(const std::string& path)> has_file = {};
  // The names of all variables. Unset: none are known.
  std::function<std::vector<std::string>()> variable_names = {};
  // Whether a host of that name is this machine. Unset: none is.
  std::function<bool(const std::string& host)> is_this_machine = {};
  // The output of a program that answers at once. Nothing: it fails. Unset: none can be asked.
  std::function<std::optional<std::string>(const std::vector<std::string>& argv)> answer = {};
};

// One option as one source sets it: a file, the environment or the command line.

struct Setting {
  const OptionRow* row = nullptr;
  std::string value;     // empty for a flag
  std::string origin;    // "--cache-capacity", "hora.yaml:3:5: params.cache_capacity"
  bool off = false;      // a flag that is switched off and has no option for that
  bool passive = false;  // a variable that the ranks inherit as it is
};

// The settings of one source. If two layers set the same option, the higher one counts.
struct Layer {
  std::string name;  // "command line", "environment", "/etc/hora/config.yaml"
  std::vector<Setting> settings;
};

// The variables by which users set Hora's runtime. Nothing reads a misspelt one, and the runtime
// cannot distinguish it from a variable of the user's own.

// docs/reference/runtime.md and environment.md say what they mean.
std::span<const std::string_view> runtime_variables();

// A line for each of `names` that is close to one of them and none of them.
std::vector<std::string> misspelt_runtime_variables(const std::vector<std::string>& names);

// Options from everywhere: the command line, a file that it names, the environment, and the files
// of the project, the user and the system, in this order; the first that sets an option counts.

struct MergedOptions {
  Spelled spelled;  // as if all had been typed; the command is that of the command line
  std::vector<Setting> settings;      // the same with their origins, in the order of the table
  std::vector<std::string> files;     // every configuration file that was looked for: "PATH (read)"
  std::vector<std::string> warnings;  // one line each: keys of those files that are ignored
};

// Errors (kUsage): a file that cannot be read, an unknown key, a value that does not fit.
Result<MergedOptions> settle_options(const Spelled& typed, Verb verb, const ProcessInputs& inputs);

// --show-config: each value with its origin; as text, or as one JSON document. `allocation`: what
// an engine has given (engine_options.h); may be empty.
std::string show_config_text(const MergedOptions& settled, const std::string& allocation);
std::string show_config_json(const MergedOptions& settled, const std::string& allocation);

// The variables that set an option, one for each of its long names: HORARUN_NUM_PROC and HORARUN_NP
// for --num-proc, --np. The first that is set counts.
std::vector<std::string> variables_of(const OptionRow& row);

}  // namespace hora::launcher
