// SPDX-License-Identifier: Apache-2.0
// The figures of a job for people, on 80 columns.  [pure]
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

#include "launcher/control/control_protocol.h"
#include "launcher/control/job_figures.h"

namespace hora::launcher {

inline constexpr std::size_t kTopRows = 10;
inline constexpr std::size_t kTopLines = 5;  // of output: all is 19 rows at most

// The table of `horarun top`: what the job is, the worst kTopRows ranks, and all together; and
// the last lines of the worst kTopLines.
std::string top_text(const JobSummary& job, const JobFigures& figures);

// The line of --progress, cut to `width`; 0: of any width. What one looks for comes first:
// "rank 2 on b delays the others for 48% of the time; 2m3s, 4 ranks, 19.2 collectives/s, ..."
std::string progress_text(const JobFigures& figures, std::chrono::milliseconds ran,
                          std::size_t width);

}  // namespace hora::launcher
