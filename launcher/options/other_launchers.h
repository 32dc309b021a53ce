// SPDX-License-Identifier: Apache-2.0
// Programs that start ranks elsewhere, where somebody gives them to horarun.  [pure]
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/options/process_inputs.h"
#include "launcher/plan/job_spec.h"

namespace hora::launcher {

// Whether it is the name of one.
bool is_launcher_name(std::string_view word);

// What the launcher at the begin of `command` would start, as arguments of horarun's; an example if
// it has options, which would have to be translated one by one. `words`: how many of them name the
// launcher.
std::string in_our_words(const std::vector<std::string>& command, std::size_t words);

// A warning for a job whose ranks are launchers: each would start as many processes as it is told,
// which know nothing of the ranks.
std::optional<std::string> launcher_warning(const JobSpec& job);

// An error (kUsage) where an MPI launcher has started several horaruns, each of which would run the
// whole job.
Status check_started_once(const ProcessInputs& inputs, const JobSpec& job);

}  // namespace hora::launcher
