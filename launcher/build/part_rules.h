// SPDX-License-Identifier: Apache-2.0
// Which parts of the runtime a job ships. A part is a line of the table in the .cpp file, and a
// name in hora_bundle() (scripts/cmake/HoraBundle.cmake).  [pure]
#pragma once

#include <string_view>

#include "launcher/plan/job_spec.h"
#include "launcher/plan/worker_environment.h"

namespace hora::launcher {

enum class Shipping { kNo, kToGpus, kYes };  // kToGpus: to hosts that have one

// `environment` is the launcher's, which ranks inherit. A part that no rule knows is always
// shipped.
Shipping shipping_for_job(std::string_view part, const JobSpec& spec,
                          const EnvironmentList& environment);

// Whether ranks may move tensors by NCCL, on hosts where that works: there are several, and
// HORA_BACKENDS does not rule it out.
bool may_use_nccl(const JobSpec& spec, const EnvironmentList& environment);

// For `horarun doctor`.
// With the runtime it loads what ranks would load.
Shipping shipping_for_doctor(std::string_view part, bool with_runtime);

}  // namespace hora::launcher
