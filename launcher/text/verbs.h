// SPDX-License-Identifier: Apache-2.0
// The verbs of horarun, once: completion, the manual page, docs/reference/cli.md and suggestions
// are made from these rows.  [pure]
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hora::launcher {

struct VerbRow {
  std::string_view name;
  std::string_view arguments;  // as in a synopsis
  std::string_view purpose;
  std::string_view words = {};  // what may follow, separated by blanks; empty: anything
};

std::span<const VerbRow> verbs();
bool is_verb(std::string_view word);
std::vector<std::string> verb_names();

}  // namespace hora::launcher
