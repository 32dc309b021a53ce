// SPDX-License-Identifier: Apache-2.0
// The figures of a job for people, on 80 columns.  [pure]
#pragma once

#include <cstddef>
#include <string>

#include "launcher/control/control_protocol.h"
#include "launcher/control/job_figures.h"

namespace hora::launcher {

inline constexpr std::size_t kTopRows = 10;

// The table of `horarun top`: what the job is, the worst kTopRows ranks, and all together.
std::string top_text(const JobSummary& job, const JobFigures& figures);

}  // namespace hora::launcher
