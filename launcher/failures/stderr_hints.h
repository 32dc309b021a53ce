// SPDX-License-Identifier: Apache-2.0
// What the last words of a rank usually mean, for errors that users meet and cannot read.  [pure]
#pragma once

#include <span>
#include <string_view>

namespace hora::launcher {

struct StderrHint {
  std::string_view id;       // "python-module"
  std::string_view pattern;  // stands in the text as it is
  std::string_view meaning;
  std::string_view fix;
};

std::span<const StderrHint> stderr_hints();
// The first row whose pattern stands in the error that ended the program, which printed `text`
// last; nullptr when none does.
const StderrHint* find_stderr_hint(std::string_view text);

}  // namespace hora::launcher
