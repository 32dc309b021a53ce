// SPDX-License-Identifier: Apache-2.0
// The options of jobs whose hosts dial the launcher: --listen.  [pure]
#pragma once

#include "launcher/options/option_check.h"
#include "launcher/plan/job_spec.h"
#include "rendezvous/base/result.h"

namespace hora::launcher {

// Behind -H, --hostfile, the engine and the transport: what reaches hosts contradicts it. Errors
// are kUsage.
Status read_listen_options(const OptionValues& values, JobSpec& job);

}  // namespace hora::launcher
