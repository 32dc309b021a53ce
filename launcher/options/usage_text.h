// SPDX-License-Identifier: Apache-2.0
// --help, the manual page and the option reference, all from the option table.  [pure]
#pragma once

#include <string>
#include <string_view>

#include "launcher/options/option_table.h"

namespace hora::launcher {

// The common options in at most 60 lines with examples, or, with `all`, every option.
std::string help_text(Verb verb, bool all);

// The same as a link named horovodrun says it: its name, and its defaults where they differ.
std::string horovodrun_help(std::string text);

// In roff (man 7). `version` as in "0.1.0".
std::string manual_page(const std::string& version);

// `text` as it stands in a cell of a Markdown table, which a bar would end.
std::string markdown_cell(std::string_view text);

// The synopsis of the verbs in a block of code, for docs/reference/cli.md.
std::string verb_reference();

// Markdown tables of all options, one per group.
std::string option_reference();

}  // namespace hora::launcher
