// SPDX-License-Identifier: Apache-2.0
// Completion for shells. Their scripts are thin: they ask horarun itself, which reads the words as
// it does for a job, so that they cannot differ.  [pure]
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/options/settings.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

// `shell` is bash, zsh or fish. The Error is kUsage.
Result<std::string> completion_script(std::string_view shell);

// What may stand in place of the last word, for these scripts. Line 1 is the kind: words, list
// (words without a blank after them), files, folders, program, or "arguments N": those of the
// program that is word N. Line 2 is what stands before the value in that word ("--hostfile="). The
// others are whole words, with a tab and a description where there is one.
std::string complete_words(const std::vector<std::string>& words, const ProcessInputs& inputs);

}  // namespace hora::launcher
