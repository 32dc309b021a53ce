// SPDX-License-Identifier: Apache-2.0
// A configuration file in YAML becomes settings: the sections of horovodrun's --config-file, and
// the section `horarun`, which takes every long option.  [pure]
// docs/reference/configuration.md has the keys as a table.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/options/settings.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

// Errors (kUsage) say `path:line:column`, what was found, and the nearest known key. Adds a warning
// for each unknown key that is near none: it is ignored.
Result<std::vector<Setting>> read_config_file(std::string_view text, const std::string& path,
                                              std::vector<std::string>& warnings);

// An option that may stand in the section `horarun` and in the environment: no question such as
// --help, and not the file itself.
bool is_configurable(const OptionRow& row);

// "true", "yes", "on", "1" and their opposites, in any case.
std::optional<bool> parse_switch(std::string_view text);

// The option that switches `row` off: --no-autotune for --autotune; nullptr when there is none.
const OptionRow* opposite_of(const OptionRow& row);

// The keys as a table in Markdown.
std::string config_reference();

}  // namespace hora::launcher
