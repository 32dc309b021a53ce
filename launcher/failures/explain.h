// SPDX-License-Identifier: Apache-2.0
// `horarun explain`: what is known of a failure class, a finding of horarun doctor, an exit code, a
// signal or a GPU fault.  [pure]
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/result.h"

namespace hora::launcher {

// Of "E_SSH_AUTH", also "ssh-auth"; "D_SHM"; "125"; "SIGKILL"; "xid79". An empty word gives the
// list of exit codes and classes. A kUsage error names a word that is close.
Result<std::string> explain(std::string_view word);

// The words that have an explanation, in their first spelling. Of exit codes, those of horarun.
std::vector<std::string> explained_words();

}  // namespace hora::launcher
