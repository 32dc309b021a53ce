// SPDX-License-Identifier: Apache-2.0
// What somebody may have meant whose program is none: a mistyped verb, another launcher's habit.
// [pure]
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/options/process_inputs.h"

namespace hora::launcher {

// Whether `word` is a file here, or a program in PATH.
bool is_program_here(const std::string& word, const ProcessInputs& inputs);

// For a command that nobody said how many ranks of: an error that names what was meant; empty when
// nothing comes close, or it is a program.
std::string answer_to_first_word(const std::vector<std::string>& command,
                                 const ProcessInputs& inputs);

// Behind an error about such a command: that it is not a program here; else empty.
std::string note_on_absence(const std::vector<std::string>& command, const ProcessInputs& inputs);

// "horarun cache list": what of this verb comes close to `word`, as "; did you mean ...?"; else
// empty.
std::string did_you_mean_action(std::string_view word);

}  // namespace hora::launcher
