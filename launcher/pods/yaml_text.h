// SPDX-License-Identifier: Apache-2.0
// A JSON value as YAML that a person can edit.  [pure]
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace hora::launcher {

// Block style. Strings stand in double quotes where a plain one could be read as something else,
// and as a literal block where they have several lines; those must end with a line feed.
std::string yaml_text(const nlohmann::ordered_json& value);

}  // namespace hora::launcher
