// SPDX-License-Identifier: Apache-2.0
// In a job of several programs a rank's number alone says little. [pure]
#pragma once

#include <string>
#include <vector>

#include "launcher/plan/job_spec.h"

namespace hora::launcher {

// " (python3 serve.py --port ...)": the program of the rank, after its name; one short line without
// secrets. Empty for a job of one program.
std::string program_label(const std::vector<Program>& programs, int rank);

}  // namespace hora::launcher
