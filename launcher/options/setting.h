// SPDX-License-Identifier: Apache-2.0
// One option as one source sets it: a file, the environment or the command line.  [pure]
#pragma once

#include <string>
#include <vector>

#include "launcher/options/option_table.h"

namespace hora::launcher {

struct Setting {
  const OptionRow* row = nullptr;
  std::string value;     // empty for a flag
  std::string origin;    // "--cache-capacity", "hora.yaml:3:5: params.cache_capacity"
  bool off = false;      // a flag that is switched off and has no option for that
  bool passive = false;  // a variable that the ranks inherit as it is
};

// What one source sets. If two layers set the same option, the higher one counts.
struct Layer {
  std::string name;  // "command line", "environment", "/etc/hora/config.yaml"
  std::vector<Setting> settings;
};

}  // namespace hora::launcher
