// SPDX-License-Identifier: Apache-2.0
// Jobs of several programs: which rank runs which.  [pure]
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "launcher/plan/job_spec.h"

namespace hora::launcher {

// The place of the rank's program among `programs`, which is not empty. Ranks beyond all of them
// belong to the last one.
std::size_t program_of_rank(const std::vector<Program>& programs, int rank);

// "./a --lr 3 : ./b", as it would be typed but for options.
std::string programs_text(const std::vector<std::vector<std::string>>& commands);
// Of every program of the job, one or several.
std::vector<std::vector<std::string>> commands_of(const JobSpec& spec);

}  // namespace hora::launcher
