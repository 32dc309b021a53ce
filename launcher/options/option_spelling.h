// SPDX-License-Identifier: Apache-2.0
// The options that a user typed: names, aliases, abbreviations, where the program begins.  [pure]
//
// Beside "--name value" and "--name=value" this reads what horovodrun takes and usual parsers do
// not: long names with one dash (-np, -hostfile), unambiguous abbreviations (--disable), and a
// program that begins with the first word that is not an option.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/options/option_table.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

struct SpelledOption {
  const OptionRow* row = nullptr;
  std::string typed;  // the name as it was typed
  std::optional<std::string> value;
};

struct Spelled {
  std::vector<SpelledOption> options;  // in order
  std::vector<std::string> command;    // from the first word that is not an option
  bool after_dashes = false;           // the command stood behind "--"
};

// Errors (kUsage): an unknown option (with the nearest one), an ambiguous abbreviation, a missing
// or unwanted value.
Result<Spelled> read_spelling(const std::vector<std::string>& arguments, Verb verb);

}  // namespace hora::launcher
