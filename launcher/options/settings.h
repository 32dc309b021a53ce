// SPDX-License-Identifier: Apache-2.0
// Options from everywhere: the command line, a file that it names, the environment, and the files
// of the project, the user and the system, in this order; the first that sets an option counts.
// [pure]
#pragma once

#include <string>
#include <vector>

#include "launcher/options/option_spelling.h"
#include "launcher/options/process_inputs.h"
#include "launcher/options/setting.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

struct Settled {
  Spelled spelled;  // as if all had been typed; the command is that of the command line
  std::vector<Setting> settings;      // the same with their origins, in the order of the table
  std::vector<std::string> files;     // every configuration file that was looked for: "PATH (read)"
  std::vector<std::string> warnings;  // one line each: keys of those files that are ignored
};

// Errors (kUsage): a file that cannot be read, an unknown key, a value that does not fit.
Result<Settled> settle_options(const Spelled& typed, Verb verb, const ProcessInputs& inputs);

// --show-config: each value with its origin; as text, or as one JSON document. `allocation`: what
// an engine has given (engine_options.h); may be empty.
std::string show_config_text(const Settled& settled, const std::string& allocation);
std::string show_config_json(const Settled& settled, const std::string& allocation);

// The variables that set an option, one for each of its long names: HORARUN_NUM_PROC and HORARUN_NP
// for --num-proc, --np. The first that is set counts.
std::vector<std::string> variables_of(const OptionRow& row);

}  // namespace hora::launcher
